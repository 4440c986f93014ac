//! A client of the exporter. Its request is read, and its answer is written, without waiting.

use grantway_command::patience;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Most bytes of a request. A scraper sends some hundred.
pub const REQUEST_MAX: usize = 4096;
/// Time that a client has for its request and answer together.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// A client of the exporter.
pub struct Client {
    stream: TcpStream,
    since: Instant,
    request: Vec<u8>,
    /// Bytes of the answer, once it is known, and the number of written bytes.
    answer: Option<(Vec<u8>, usize)>,
}

/// State of a client.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// The client waits for its socket.
    Waits,
    /// The client asks for the metrics.
    Asks,
    /// The client has its answer, or is gone.
    Done,
}

/// Reason why a request gets no metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The request is not HTTP.
    Malformed,
    /// The request is for another path.
    NotFound,
    /// The request has another method.
    Method,
    /// The request is longer than [`REQUEST_MAX`].
    TooLong,
    /// The backend gave no report in time.
    Unavailable,
}

impl Refusal {
    fn status(self) -> &'static str {
        match self {
            Self::Malformed => "400 Bad Request",
            Self::NotFound => "404 Not Found",
            Self::Method => "405 Method Not Allowed",
            Self::TooLong => "431 Request Header Fields Too Large",
            Self::Unavailable => "503 Service Unavailable",
        }
    }
}

impl Client {
    /// Takes a client that connected at the time `since`. The socket must not block.
    pub fn new(stream: TcpStream, since: Instant) -> Self {
        Self { stream, since, request: Vec::new(), answer: None }
    }

    /// Returns the time at which the client must be finished.
    pub fn deadline(&self) -> Instant {
        self.since + patience::answer(PATIENCE)
    }

    /// Returns the client's socket, and true if the client waits to write to it.
    pub fn interest(&self) -> (BorrowedFd<'_>, bool) {
        (self.stream.as_fd(), self.answer.is_some())
    }

    /// Reads or writes as much as is possible without waiting.
    pub fn step(&mut self) -> Step {
        if self.answer.is_some() { self.write() } else { self.read() }
    }

    fn read(&mut self) -> Step {
        let mut part = [0; 1024];
        loop {
            match self.stream.read(&mut part) {
                Ok(0) => return Step::Done,
                Ok(n) => self.request.extend_from_slice(&part[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Step::Waits,
                Err(_) => return Step::Done,
            }
            match judge(&self.request) {
                None => {}
                Some(Ok(())) => return Step::Asks,
                Some(Err(refusal)) => return self.refuse(refusal),
            }
        }
    }

    fn write(&mut self) -> Step {
        let Some((answer, at)) = &mut self.answer else { return Step::Waits };
        while let Some(rest) = answer.get(*at..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(0) => return Step::Done,
                Ok(n) => *at += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Step::Waits,
                Err(_) => return Step::Done,
            }
        }
        let _ = self.stream.shutdown(Shutdown::Write);
        Step::Done
    }

    /// Answers the client with the metrics.
    pub fn give(&mut self, text: &str) -> Step {
        self.respond("200 OK", "text/plain; version=0.0.4; charset=utf-8", text)
    }

    /// Answers the client with a refusal.
    pub fn refuse(&mut self, refusal: Refusal) -> Step {
        let status = refusal.status();
        self.respond(status, "text/plain; charset=utf-8", &format!("{status}; GET /metrics\n"))
    }

    fn respond(&mut self, status: &str, kind: &str, body: &str) -> Step {
        let allow = if status.starts_with("405") { "Allow: GET\r\n" } else { "" };
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
             {allow}Connection: close\r\n\r\n{body}"
        );
        self.answer = Some((answer.into_bytes(), 0));
        self.write()
    }
}

/// Judges a request once it is complete. Returns `None` before that, and `Ok` if the request is for
/// the metrics.
fn judge(request: &[u8]) -> Option<Result<(), Refusal>> {
    if request.len() > REQUEST_MAX {
        return Some(Err(Refusal::TooLong));
    }
    if !request.windows(4).any(|end| end == b"\r\n\r\n") {
        return None;
    }
    let line = request.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|&byte| byte == b' ');
    let (method, path, version) = (words.next(), words.next(), words.next());
    let path = path.and_then(|path| path.split(|&byte| byte == b'?').next());
    Some(match (method, path, version, words.next()) {
        (Some(method), Some(path), Some(version), None) if version.starts_with(b"HTTP/1.") => {
            match (method, path) {
                (b"GET", b"/metrics") => Ok(()),
                (b"GET", _) => Err(Refusal::NotFound),
                _ => Err(Refusal::Method),
            }
        }
        _ => Err(Refusal::Malformed),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_judged_once_they_are_whole() {
        let whole = |line: &str| judge(format!("{line}\r\nHost: a\r\n\r\n").as_bytes());
        for line in ["GET /metrics HTTP/1.1", "GET /metrics?x=y HTTP/1.0"] {
            assert_eq!(whole(line), Some(Ok(())), "{line}");
        }
        assert_eq!(whole("GET / HTTP/1.1"), Some(Err(Refusal::NotFound)));
        assert_eq!(whole("POST /metrics HTTP/1.1"), Some(Err(Refusal::Method)));
        for line in ["", "GET", "GET /metrics", "GET /metrics HTTP/2", "GET /metrics HTTP/1.1 x"] {
            assert_eq!(whole(line), Some(Err(Refusal::Malformed)), "{line}");
        }
        assert_eq!(judge(b"GET /metrics HTTP/1.1\r\n"), None);
        assert_eq!(judge(&[b'a'; REQUEST_MAX]), None);
        assert_eq!(judge(&[b'a'; REQUEST_MAX + 1]), Some(Err(Refusal::TooLong)));
    }
}
