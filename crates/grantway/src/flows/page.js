"use strict";
// Draws, for each flow, four plots over one time, which can be zoomed into.
// A point is [time, value] or [time, smallest, largest]: neighbours were merged.
(() => {
  const flows = JSON.parse(document.getElementById("data").textContent);
  const state = document.body.dataset;
  state.drawn = "0";
  addEventListener("error", (event) => { state.error = event.message; });

  const NARROW = 520;
  const LEFT = 62, RIGHT = 10, TOP = 24, BOTTOM = 22;
  const PLOTS = [
    {
      title: "Bytes sent", unit: "B", height: 250, zero: false,
      lines: [["sent", "sent", 0], ["acked", "acknowledged", 3]], marks: ["again", "sent again"],
    },
    { title: "Round trip", unit: "ms", height: 150, zero: true, lines: [["rtt", "ms", 3]] },
    {
      title: "In flight", unit: "B", height: 170, zero: true,
      lines: [["flight", "in flight", 0], ["window", "window", 4]], leads: "flight",
    },
    { title: "Throughput", unit: "Mbit/s", height: 150, zero: true, lines: [["rate", "Mbit/s", 2]] },
  ];

  const svg = (name, attributes, ...children) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const html = (name, attributes, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };

  const short = (value) => {
    const size = Math.abs(value);
    for (const [unit, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
      if (size >= unit) return `${+(value / unit).toPrecision(4)}${letter}`;
    }
    return String(+value.toPrecision(4));
  };
  const seconds = (time, step) => {
    const digits = Math.min(6, Math.max(0, Math.ceil(-Math.log10(step))));
    return time.toFixed(digits);
  };
  const niceStep = (span, wanted) => {
    const rough = span / Math.max(1, wanted);
    const power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 5, 10].map((n) => n * power).find((step) => step >= rough * 0.999);
  };
  const ticks = (from, to, wanted) => {
    const step = niceStep(to - from, wanted);
    const all = [];
    for (let n = Math.ceil(from / step); n * step <= to * (1 + 1e-12) && all.length < 50; n++) {
      all.push(n * step);
    }
    return [all, step];
  };

  // The rate as points: each part begins where the last one ends.
  for (const flow of flows) {
    for (const side of flow.sides) {
      const { from, width, values } = side.rate;
      side.rate = values.map((value, at) => [from + at * width, value]);
      if (values.length) side.rate.push([from + values.length * width, values.at(-1)]);
    }
  }

  // The first point at or after a time.
  const after = (points, time) => {
    let [low, high] = [0, points.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (points[middle][0] < time) low = middle + 1; else high = middle;
    }
    return low;
  };
  const largest = (point) => point[2] ?? point[1];

  class View {
    constructor(flow, place) {
      this.flow = flow;
      this.place = place;
      this.side = flow.main;
      // A flow of one packet has a width, too.
      this.span = Math.max(flow.to - flow.from, 1e-6);
      this.whole = [flow.from, flow.from + this.span];
      this.range = [...this.whole];
      this.build();
      this.draw();
      state.drawn = String(Number(state.drawn) + 1);
      let known = place.clientWidth;
      new ResizeObserver(() => {
        if (place.clientWidth !== known) { known = place.clientWidth; this.draw(); }
      }).observe(place);
    }

    build() {
      const button = (text, label, act) => {
        const made = html("button", { type: "button", "aria-label": label, title: label }, text);
        made.addEventListener("click", act);
        return made;
      };
      this.sides = this.flow.names.map((name, side) => button(name, `Data of ${name}`, () => {
        this.side = side;
        this.draw();
      }));
      const tools = html("div", { class: "bar-of-flow" },
        button("+", "Zoom in", () => this.zoom(0.5)),
        button("\u2212", "Zoom out", () => this.zoom(2)),
        button("\u25c0", "Earlier", () => this.move(-0.4)),
        button("\u25b6", "Later", () => this.move(0.4)),
        button("All", "The whole time", () => this.show(this.whole)),
        html("span", { class: "gap" }), ...this.sides);
      this.list = html("div", { class: "go" });
      this.readout = html("output", { class: "readout" });
      this.charts = PLOTS.map((plot) => {
        const label = `${plot.title} over time; plus and minus zoom, arrows move, 0 shows all`;
        const chart = svg("svg", { class: "chart", tabindex: "0", role: "img", "aria-label": label });
        this.listen(chart);
        return chart;
      });
      this.place.replaceChildren(tools, this.list, this.readout, ...this.charts);
    }

    listen(chart) {
      let start = null;
      chart.addEventListener("pointerdown", (event) => {
        if (event.button !== 0) return;
        start = event.offsetX;
        chart.setPointerCapture(event.pointerId);
      });
      chart.addEventListener("pointermove", (event) => this.point(event.offsetX, start));
      chart.addEventListener("pointerup", (event) => {
        const from = start;
        start = null;
        if (from !== null && Math.abs(event.offsetX - from) > 5) {
          this.show([this.time(from), this.time(event.offsetX)].sort((a, b) => a - b));
        }
      });
      chart.addEventListener("pointercancel", () => { start = null; this.draw(); });
      chart.addEventListener("pointerleave", () => { if (start === null) this.point(null, null); });
      chart.addEventListener("dblclick", () => this.show(this.whole));
      chart.addEventListener("wheel", (event) => {
        // Without Ctrl the page scrolls.
        if (!event.ctrlKey) return;
        event.preventDefault();
        this.zoom(event.deltaY < 0 ? 0.7 : 1.4, this.time(event.offsetX));
      }, { passive: false });
      chart.addEventListener("keydown", (event) => {
        const acts = {
          "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2),
          ArrowLeft: () => this.move(-0.2), ArrowRight: () => this.move(0.2),
          0: () => this.show(this.whole),
        };
        if (event.ctrlKey || event.metaKey || !acts[event.key]) return;
        event.preventDefault();
        acts[event.key]();
      });
    }

    zoom(factor, around) {
      const [from, to] = this.range;
      const middle = around ?? (from + to) / 2;
      this.show([middle - (middle - from) * factor, middle + (to - middle) * factor]);
    }

    move(part) {
      const width = this.range[1] - this.range[0];
      const [first, last] = this.whole;
      const from = Math.min(Math.max(this.range[0] + part * width, first), last - width);
      this.show([from, from + width]);
    }

    // Shows a time, no less than a microsecond and no more than there is.
    show([from, to]) {
      const [first, last] = this.whole;
      const least = Math.min(1e-6, this.span);
      const middle = Math.min(Math.max((from + to) / 2, first + least / 2), last - least / 2);
      const half = Math.max(to - from, least) / 2;
      this.range = [Math.max(first, middle - half), Math.min(last, middle + half)];
      this.draw();
    }

    x(time) {
      const [from, to] = this.range;
      return LEFT + (time - from) / (to - from) * (this.width - LEFT - RIGHT);
    }

    time(x) {
      const [from, to] = this.range;
      const part = (x - LEFT) / (this.width - LEFT - RIGHT);
      return from + Math.min(1, Math.max(0, part)) * (to - from);
    }

    stalls() {
      return this.flow.stalls.filter((stall) => stall.side === this.side);
    }

    draw() {
      this.width = Math.max(240, this.place.clientWidth);
      this.sides.forEach((button, side) => {
        button.setAttribute("aria-pressed", String(side === this.side));
      });
      this.list.replaceChildren(...this.stalls().map((stall) => {
        const text = `${stall.at.toFixed(3)} s: ${Math.round(stall.for * 1e3)} ms, ${stall.cause}`;
        const made = html("button", { type: "button", class: `cause-${stall.cause}` },
          html("span", { class: "swatch" }), stall.ended ? text : `${text}, goes on`);
        made.addEventListener("click", () => {
          this.show([stall.at - stall.for, stall.at + 2 * stall.for]);
        });
        return made;
      }));
      this.list.hidden = this.list.childElementCount === 0;
      PLOTS.forEach((plot, at) => this.plot(plot, this.charts[at], at));
      this.point(null, null);
    }

    plot(plot, chart, number) {
      const height = this.width < NARROW ? Math.round(plot.height * 0.85) : plot.height;
      const lines = this.flow.sides[this.side];
      const [from, to] = this.range;
      // What is to be seen, and a point before and behind.
      const seen = (name) => {
        const points = name === "rate" ? this.joined(lines.rate) : lines[name];
        return points.slice(Math.max(0, after(points, from) - 1), after(points, to) + 1);
      };
      const shown = plot.lines.map(([name, label, look]) => ({ name, label, look, points: seen(name) }));
      // A window that nothing comes near is not to flatten what is in flight.
      const top = (points) => points.reduce((most, point) => Math.max(most, largest(point)), 0);
      const lead = plot.leads ? 1.15 * top(shown.find((line) => line.name === plot.leads).points) : 0;
      for (const line of shown) {
        line.beyond = lead > 0 && line.name !== plot.leads && top(line.points) > 3 * lead;
        if (line.beyond) line.label += `, up to ${short(top(line.points))}`;
      }
      const inside = shown.filter((line) => !line.beyond).flatMap((line) => line.points);
      let low = plot.zero ? 0 : inside.reduce((least, point) => Math.min(least, point[1]), Infinity);
      let high = inside.reduce((most, point) => Math.max(most, largest(point)), -Infinity);
      if (!(high > low)) [low, high] = [Number.isFinite(low) ? low : 0, (Number.isFinite(low) ? low : 0) + 1];
      const bottom = height - BOTTOM;
      if (lead > 0) high = Math.max(high, lead);
      const y = (value) => bottom - Math.min(1.02, (value - low) / (high - low)) * (bottom - TOP - 4);

      chart.setAttribute("viewBox", `0 0 ${this.width} ${height}`);
      chart.setAttribute("height", height);
      const parts = [this.axes(plot, y, [low, high], bottom)];
      parts.push(...this.bands(bottom, number === 0));
      let key = 18 + (plot.title.length + plot.unit.length + 2) * 7;
      for (const line of shown) {
        const group = svg("g", { class: `s${line.look}` });
        group.append(...this.line(line, y));
        if (plot.lines.length > 1 || plot.marks) {
          group.append(svg("path", { class: "key", d: `M${key} 10h14` }),
            svg("text", { x: key + 18, y: 14 }, line.label));
          key += 30 + line.label.length * 6.6;
        }
        parts.push(group);
      }
      if (plot.marks) parts.push(...this.marks(plot, lines, seen(plot.marks[0]), y, key));
      parts.push(svg("rect", { class: "chosen", y: TOP, height: bottom - TOP, x: 0, width: 0 }));
      parts.push(svg("path", { class: "cursor", d: "" }));
      chart.replaceChildren(...parts);
      chart.bottom = bottom;
    }

    // Parts of a rate, put together so that each is three pixels wide or more.
    joined(points) {
      const [from, to] = this.range;
      const width = points.length > 1 ? points[1][0] - points[0][0] : 1;
      const each = Math.ceil(3 * (to - from) / (this.width - LEFT - RIGHT) / width);
      const parts = points.length - 1;
      if (each < 2 || parts < 2) return points;
      const all = [];
      for (let at = 0; at < parts; at += each) {
        const some = points.slice(at, Math.min(at + each, parts));
        all.push([some[0][0], some.reduce((sum, point) => sum + point[1], 0) / some.length]);
      }
      return [...all, [points[parts][0], all.at(-1)[1]]];
    }

    axes(plot, y, [low, high], bottom) {
      const group = svg("g", {});
      const right = this.width - RIGHT;
      for (const value of ticks(low, high, plot.height / 50)[0]) {
        const at = y(value).toFixed(1);
        group.append(svg("path", { class: "grid", d: `M${LEFT} ${at}H${right}` }),
          svg("text", { x: LEFT - 6, y: Number(at) + 4, "text-anchor": "end" }, short(value)));
      }
      const [times, step] = ticks(...this.range, (this.width - LEFT) / 110);
      for (const time of times) {
        const at = this.x(time).toFixed(1);
        const text = `${seconds(time, step)} s`;
        const end = Number(at) > right - text.length * 3.5;
        group.append(svg("path", { class: "grid", d: `M${at} ${TOP}V${bottom}` }),
          svg("text", { x: end ? right : at, y: bottom + 16, "text-anchor": end ? "end" : "middle" }, text));
      }
      group.append(svg("path", { class: "axis", d: `M${LEFT} ${TOP}V${bottom}H${right}` }),
        svg("text", { class: "title", x: 4, y: 14 }, `${plot.title}, ${plot.unit}`));
      return group;
    }

    // Times for which nothing came, with their cause.
    bands(bottom, named) {
      const [from, to] = this.range;
      const visible = this.stalls().filter((stall) => stall.at < to && stall.at + stall.for > from);
      return visible.map((stall) => {
        const left = this.x(Math.max(stall.at, from));
        const width = Math.max(1.5, this.x(Math.min(stall.at + stall.for, to)) - left);
        const group = svg("g", {
          class: `stall cause-${stall.cause}`, "data-cause": stall.cause, "data-at": stall.at, "data-for": stall.for,
        }, svg("title", {}, `${stall.cause}: ${Math.round(stall.for * 1e3)} ms`),
        svg("rect", { x: left.toFixed(1), y: TOP, width: width.toFixed(1), height: bottom - TOP }),
        svg("path", { d: `M${left.toFixed(1)} ${TOP}V${bottom}` }));
        if (named) {
          // Where there is no room for the name, its first letter tells it.
          const text = width > stall.cause.length * 7 + 8 ? stall.cause : stall.cause[0];
          if (width > 9) group.append(svg("text", { x: (left + 4).toFixed(1), y: bottom - 6 }, text));
        }
        return group;
      });
    }

    // Steps through the largest values, and what was merged below each of them.
    line({ name, points }, y) {
      if (name === "rtt") return this.dots(points, y);
      let path = "", ranges = "";
      let drawing = false, last = 0;
      const [left, right] = [LEFT, this.width - RIGHT];
      points.forEach((point, at) => {
        const x = Math.min(right, Math.max(left, this.x(point[0]))).toFixed(1);
        const top = y(largest(point)).toFixed(1);
        if (!drawing) path += `M${x} ${top}`;
        else path += `H${x}V${top}`;
        if (point.length > 2) ranges += `M${x} ${y(point[1]).toFixed(1)}V${top}`;
        [drawing, last] = [true, at];
      });
      // What was last true stays true, for as long as is shown.
      if (points[last] && points[last][0] < this.range[1]) {
        path += `H${this.x(Math.min(this.range[1], this.flow.to)).toFixed(1)}`;
      }
      return [svg("path", { class: "range", d: ranges }), svg("path", { class: "line", d: path })];
    }

    // Round trips: between two of them nothing is known.
    dots(points, y) {
      const [from, to] = this.range;
      const inside = points.filter((point) => point[0] >= from && point[0] <= to);
      const dot = (point) => {
        const x = this.x(point[0]).toFixed(1);
        return `M${x} ${y(point[1]).toFixed(1)}V${(y(largest(point)) - 0.1).toFixed(1)}`;
      };
      return [svg("path", { class: "dot", d: inside.map(dot).join("") })];
    }

    marks(plot, lines, points, y, key) {
      const cross = (x, at) => `M${x - 3.5} ${at - 3.5}l7 7m0 -7l-7 7`;
      const [from, to] = this.range;
      const inside = points.filter((point) => point[0] >= from && point[0] <= to);
      const path = inside.map((point) => cross(this.x(point[0]), y(largest(point)))).join("");
      const made = [svg("path", { class: "again", d: path })];
      if (lines[plot.marks[0]].length) {
        made.push(svg("path", { class: "again", d: cross(key + 7, 10) }),
          svg("text", { x: key + 18, y: 14 }, plot.marks[1]));
      }
      return made;
    }

    // The values at a place, and what is being chosen.
    point(x, start) {
      const inside = x !== null && x >= LEFT;
      for (const chart of this.charts) {
        const at = inside ? Math.min(x, this.width - RIGHT) : 0;
        chart.lastChild.setAttribute("d", inside ? `M${at} ${TOP}V${chart.bottom}` : "");
        const chosen = chart.lastChild.previousSibling;
        const [low, high] = start === null || x === null ? [0, 0] : [Math.min(start, x), Math.max(start, x)];
        chosen.setAttribute("x", Math.max(low, LEFT));
        chosen.setAttribute("width", Math.max(0, Math.min(high, this.width - RIGHT) - Math.max(low, LEFT)));
      }
      this.readout.textContent = inside ? this.values(this.time(x)) : "Drag to zoom in; double-click for all.";
    }

    values(time) {
      const lines = this.flow.sides[this.side];
      const parts = PLOTS.flatMap((plot) => plot.lines.map(([name, label]) => {
        const point = lines[name][after(lines[name], time + 1e-12) - 1];
        return point ? `${label === plot.unit ? plot.title.toLowerCase() : label} ${short(largest(point))} ${plot.unit}` : null;
      }));
      return [`${time.toFixed(6)} s`, ...parts.filter(Boolean)].join(", ");
    }
  }

  // The largest flow is drawn at once, another when it comes near.
  const byNumber = new Map(flows.map((flow) => [String(flow.number), flow]));
  const near = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      near.unobserve(target);
      new View(byNumber.get(target.dataset.place), target);
    }
  }, { rootMargin: "800px" });
  document.querySelectorAll(".live").forEach((place, at) => {
    if (at === 0) new View(byNumber.get(place.dataset.place), place); else near.observe(place);
  });
})();
