//! How fast contents are generated and verified on one core:
//! `cargo run --release -p bench-load --example generate_speed`

use std::time::Instant;

use bench_load::data::{FileVersion, SeededData};

fn main() {
    const PIECE: usize = 1 << 20;
    const PIECES: u64 = 4096;
    let (content, place) = (SeededData::default(), FileVersion { file: 1, version: 1 });
    let rate = |start: Instant| (PIECES * PIECE as u64) as f64 / start.elapsed().as_secs_f64() / 1e9;
    let start = Instant::now();
    for piece in 0..PIECES {
        std::hint::black_box(content.generate(place, piece * PIECE as u64, PIECE));
    }
    println!("generate {:.2} GB/s", rate(start));
    let buffer = content.generate(place, 0, PIECE);
    let start = Instant::now();
    for _ in 0..PIECES {
        assert_eq!(content.verify(place, 0, std::hint::black_box(&buffer)), Ok(()));
    }
    println!("verify   {:.2} GB/s", rate(start));
}
