//! Copies leave the upper halves of registers alone, where code that is built for AVX may hold
//! values in them. It does so over a copy that is inlined, in a program that is optimised as a
//! whole: `make avx2` builds one.
#![cfg(all(target_arch = "x86_64", target_feature = "avx2", not(loom), not(miri)))]
#![allow(missing_docs)]

use grantway_ring::SharedRun;

#[test]
fn registers_keep_their_upper_halves_over_copies() {
    let page = SharedRun::private(1).page(0).unwrap();
    let mut bytes = [7; 128];
    for len in [32, 48, 64, 96, 128] {
        // Four numbers are a register.
        let mut sums = [[1_i64, 2, 3, 4]; 8];
        for _ in 0..100 {
            page.write(0, &bytes[..len]).unwrap();
            page.read(0, &mut bytes[..len]).unwrap();
            for sum in &mut sums {
                for (number, more) in sum.iter_mut().zip([1, 2, 3, 4]) {
                    *number += more;
                }
            }
        }
        assert_eq!(sums, [[101, 202, 303, 404]; 8], "over copies of {len} bytes");
    }
}
