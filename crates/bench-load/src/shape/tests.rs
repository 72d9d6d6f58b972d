use std::collections::BTreeMap;

use proptest::prelude::*;

use super::sequence::zipf;
use super::*;
use crate::data::mix_all;

/// Everything that each worker of a fleet touches, in order.
fn touches(layout: &Layout, work: &LoadWork, fleet: &ClientSet) -> BTreeMap<(u32, u32), Vec<Touch>> {
    let mut all = BTreeMap::new();
    for client in 0..fleet.clients {
        for worker in 0..fleet.workers {
            let sequence = Sequence::new(layout, work, client, worker);
            let part = sequence.part(fleet, client, worker);
            if part == SequencePart::NextOfClient && worker > 0 {
                continue;
            }
            let numbers = (0..).map_while(|n| sequence.number(&part, n));
            all.insert((client, worker), numbers.filter_map(|number| sequence.at(number)).collect());
        }
    }
    all
}

/// (file, offset, length) of what was read.
fn reads(touches: &[Touch]) -> Vec<(u64, u64, u64)> {
    let read = |touch: &Touch| match *touch {
        Touch::Read(FilePart { file, offset, length }) => Some((file, offset, length)),
        _ => None,
    };
    touches.iter().filter_map(read).collect()
}

fn every_block(layout: &Layout, block: u64) -> Vec<(u64, u64, u64)> {
    let of = |file: u64| {
        let size = layout.size_of(file);
        (0..size.div_ceil(block).max(1)).map(move |b| (file, b * block, block.min(size - b * block)))
    };
    (0..layout.files).flat_map(of).collect()
}

#[test]
fn the_four_shapes_are_what_their_names_say() {
    let one = Layout { files: 1, sizes: Sizes::Equal(8), ..Layout::default() };
    let four = Layout { files: 4, sizes: Sizes::Equal(8), ..Layout::default() };
    let fleet = ClientSet { clients: 2, first_client: 0, workers: 2 };
    let of = |layout: &Layout, work: LoadWork| touches(layout, &LoadWork { block_bytes: 2, ..work }, &fleet);
    let whole = |file| vec![Touch::Read(FilePart { file, offset: 0, length: 8 })];
    for seen in of(&one, LoadWork::sfmr()).values() {
        assert_eq!(seen, &whole(0), "each reader reads the whole file");
    }
    let sections: Vec<_> = of(&one, LoadWork::sfmr_sections()).into_values().map(|t| reads(&t)).collect();
    assert_eq!(sections, [[(0, 0, 2)], [(0, 2, 2)], [(0, 4, 2)], [(0, 6, 2)]]);
    let written: Vec<_> = of(&one, LoadWork::sfmw()).into_values().flatten().collect();
    let wanted = [0, 2, 4, 6].map(|offset| Touch::Write(FilePart { file: 0, offset, length: 2 }));
    assert_eq!(written, wanted, "each writer has a section");
    let written: Vec<_> = of(&four, LoadWork::mfmw()).into_values().collect();
    assert_eq!(written, [0, 1, 2, 3].map(|file| vec![Touch::Write(FilePart { file, offset: 0, length: 8 })]));
    let epochs = of(&four, LoadWork::mfmr());
    assert_eq!(epochs.len(), 2, "a sequence for each client");
    for seen in epochs.values() {
        let mut files: Vec<u64> = reads(seen).iter().map(|(file, ..)| *file).collect();
        files.sort_unstable();
        assert_eq!(files, [0, 1, 2, 3]);
    }
}

#[test]
fn interleaved_writers_of_one_file_take_turns_as_in_ior_hard() {
    let layout = Layout { sizes: Sizes::Equal(12), ..Layout::default() };
    let work = LoadWork {
        unit: TouchUnit::Block,
        share: Sharing::Interleaved,
        block_bytes: 2,
        ..LoadWork::default()
    };
    let fleet = ClientSet { clients: 2, first_client: 0, workers: 1 };
    let seen: Vec<_> = touches(&layout, &work, &fleet).into_values().map(|t| reads(&t)).collect();
    assert_eq!(seen, [[(0, 0, 2), (0, 4, 2), (0, 8, 2)], [(0, 2, 2), (0, 6, 2), (0, 10, 2)]]);
}

#[test]
fn a_stride_goes_through_the_file_in_columns() {
    let layout = Layout { sizes: Sizes::Equal(14), ..Layout::default() };
    let work = LoadWork {
        unit: TouchUnit::Block,
        order: AccessOrder::Strided(3),
        block_bytes: 2,
        ..LoadWork::default()
    };
    let seen = touches(&layout, &work, &ClientSet::default());
    let offsets: Vec<u64> = reads(&seen[&(0, 0)]).iter().map(|(_, offset, _)| offset / 2).collect();
    assert_eq!(offsets, [0, 3, 6, 1, 4, 2, 5]);
}

#[test]
fn clients_go_through_an_epoch_in_orders_of_their_own_and_another_epoch_in_another() {
    let layout = Layout { files: 100, sizes: Sizes::Equal(1), ..Layout::default() };
    let work = LoadWork { amount: Amount::Epochs(2), ..LoadWork::mfmr() };
    let seen = touches(&layout, &work, &ClientSet { clients: 2, ..ClientSet::default() });
    let (a, b) = (&seen[&(0, 0)], &seen[&(1, 0)]);
    assert_eq!((a.len(), b.len()), (200, 200));
    assert_ne!(a, b);
    assert_ne!(a[..100], a[100..]);
    assert_eq!(
        &touches(&layout, &work, &ClientSet { clients: 2, ..ClientSet::default() })[&(0, 0)],
        a,
        "and again"
    );
}

#[test]
fn mixed_ratios_come_out() {
    const BLOCK: u64 = 64 << 10;
    const FILE: u64 = 1 << 20;
    let layout = Layout { files: 1000, files_per_directory: 10, ..Layout::default() };
    let mix = Mix { read: 35, write: 15, stat: 20, list: 10, delete: 12, range: 8 };
    let work = LoadWork {
        operation: LoadOperation::Mixed(mix),
        order: AccessOrder::Uniform,
        amount: Amount::Draws(20_000),
        block_bytes: BLOCK,
        ..LoadWork::default()
    };
    work.check().expect("makes sense");
    let seen = &touches(&layout, &work, &ClientSet::default())[&(0, 0)];
    let count = |pick: fn(&Touch) -> bool| seen.iter().filter(|touch| pick(touch)).count() as f64 / 200.0;
    let shares = [
        count(|t| matches!(t, Touch::Read(FilePart { length: FILE, .. }))),
        count(|t| matches!(t, Touch::Write(_))),
        count(|t| matches!(t, Touch::Stat(_))),
        count(|t| matches!(t, Touch::List(directory) if *directory < 100)),
        count(|t| matches!(t, Touch::Delete(directory) if *directory < 100)),
        count(
            |t| matches!(t, Touch::Read(FilePart { length: BLOCK, offset, .. }) if offset % BLOCK == 0 && *offset < FILE),
        ),
    ];
    for (share, wanted) in shares.iter().zip([35.0, 15.0, 20.0, 10.0, 12.0, 8.0]) {
        assert!((share - wanted).abs() < 2.0, "{shares:?}");
    }
}

#[test]
fn popular_units_are_the_same_for_every_client() {
    let layout = Layout { files: 1000, ..Layout::default() };
    for order in
        [AccessOrder::Zipf { theta: 1.2 }, AccessOrder::Hotspot { hot_percent: 1.0, access_percent: 90.0 }]
    {
        let work =
            LoadWork { order, amount: Amount::Draws(5000), share: Sharing::Client, ..LoadWork::default() };
        let seen = touches(&layout, &work, &ClientSet { clients: 2, ..ClientSet::default() });
        let top = |client| {
            let mut counts = BTreeMap::<u64, u64>::new();
            reads(&seen[&(client, 0)]).iter().for_each(|(file, ..)| *counts.entry(*file).or_default() += 1);
            let mut by_count: Vec<_> = counts.into_iter().map(|(file, count)| (count, file)).collect();
            by_count.sort_unstable();
            by_count.into_iter().rev().take(10).collect::<Vec<_>>()
        };
        let files = |top: Vec<(u64, u64)>| {
            top.into_iter().map(|(_, file)| file).collect::<std::collections::BTreeSet<_>>()
        };
        let share = top(0).iter().map(|(count, _)| count).sum::<u64>();
        assert!(share > 2000, "ten of a thousand files have {share} of 5000 draws");
        assert!(files(top(0)).intersection(&files(top(1))).count() >= 7, "{order:?}");
    }
}

#[test]
fn a_walk_lists_every_directory_once() {
    let layout = Layout { files: 25, files_per_directory: 10, ..Layout::default() };
    let seen = &touches(&layout, &LoadWork::walk(), &ClientSet::default())[&(0, 0)];
    assert_eq!(seen, &[0, 1, 2].map(Touch::Walk));
    assert_eq!(layout.files_of(2), 20..25);
    assert_eq!(layout.path("root", 0, 12), "root/d00001/f00000012");
}

#[test]
fn private_files_have_paths_and_contents_of_their_own() {
    let layout = Layout { files: 10, files_per_directory: 5, private: true, ..Layout::default() };
    assert_eq!(layout.path("r", 3, 7), "r/c00003/d00001/f00000007");
    assert_ne!(layout.content_id(3, 7), layout.content_id(4, 7));
    let seen = touches(&layout, &LoadWork::mfmw(), &ClientSet { clients: 3, ..ClientSet::default() });
    assert!(seen.values().all(|touches| touches.len() == 10), "each client writes all of its own");
    for name in ["c00003", "d00001", "f00000007"] {
        assert!(Layout::makes_name(name));
    }
    for name in ["f", "report", "d1", "f0000000x", "x00001"] {
        assert!(!Layout::makes_name(name), "{name}");
    }
}

#[test]
fn nonsense_is_refused_in_one_line() {
    let refused = [
        LoadWork { block_bytes: 0, ..LoadWork::default() },
        LoadWork { amount: Amount::Epochs(0), ..LoadWork::default() },
        LoadWork { order: AccessOrder::Uniform, ..LoadWork::default() },
        LoadWork { order: AccessOrder::Strided(4), ..LoadWork::default() },
        LoadWork { order: AccessOrder::Strided(0), unit: TouchUnit::Block, ..LoadWork::default() },
        LoadWork {
            order: AccessOrder::Zipf { theta: -1.0 },
            amount: Amount::Draws(1),
            ..LoadWork::default()
        },
        LoadWork { operation: LoadOperation::Mixed(Mix::default()), ..LoadWork::default() },
        LoadWork {
            order: AccessOrder::Hotspot { hot_percent: 0.0, access_percent: 90.0 },
            amount: Amount::Draws(1),
            ..LoadWork::default()
        },
    ];
    for work in refused {
        let error = work.check().expect_err("nonsense");
        assert!(!error.to_string().contains('\n'), "{error}");
    }
    for layout in [
        Layout { files: 0, ..Layout::default() },
        Layout { sizes: Sizes::Equal(u64::MAX), ..Layout::default() },
        Layout { sizes: Sizes::Spread { min: 5, max: 4 }, ..Layout::default() },
        Layout { files: 1 << 39, sizes: Sizes::Equal(1 << 40), ..Layout::default() },
    ] {
        assert!(layout.check().is_err(), "{layout:?}");
    }
}

fn sizes() -> impl Strategy<Value = Sizes> {
    prop_oneof![
        (0_u64..300).prop_map(Sizes::Equal),
        (0_u64..50, 50_u64..300).prop_map(|(min, max)| Sizes::Spread { min, max }),
    ]
}

proptest! {
    #[test]
    fn every_block_comes_exactly_once_per_epoch(
        files in 1_u64..20,
        sizes in sizes(),
        block_bytes in 1_u64..70,
        epochs in 1_u64..4,
        clients in 1_u32..5,
        workers in 1_u32..4,
        seed in any::<u64>(),
        order in prop_oneof![Just(AccessOrder::Sequential), Just(AccessOrder::Random), (1_u64..9).prop_map(AccessOrder::Strided)],
        share in prop_oneof![Just(Sharing::Split), Just(Sharing::Interleaved), Just(Sharing::Client), Just(Sharing::Worker)],
    ) {
        let layout = Layout { files, sizes, ..Layout::default() };
        let work = LoadWork { unit: TouchUnit::Block, order, share, amount: Amount::Epochs(epochs), block_bytes, seed, ..LoadWork::default() };
        prop_assert!(work.check().is_ok());
        let fleet = ClientSet { clients, first_client: 0, workers };
        let seen = touches(&layout, &work, &fleet);
        let mut wanted: Vec<_> = (0..epochs).flat_map(|_| every_block(&layout, block_bytes)).collect();
        wanted.sort_unstable();
        let sorted = |touches: Vec<Touch>| {
            let mut reads = reads(&touches);
            reads.sort_unstable();
            reads
        };
        match share {
            Sharing::Split | Sharing::Interleaved => {
                prop_assert_eq!(sorted(seen.into_values().flatten().collect()), wanted);
            }
            Sharing::Client | Sharing::Worker => {
                for touches in seen.into_values() {
                    prop_assert_eq!(sorted(touches), wanted.clone());
                }
            }
        }
    }

    #[test]
    fn draws_stay_inside_the_files_and_are_as_many_as_asked(
        files in 1_u64..50,
        sizes in sizes(),
        draws in 1_u64..200,
        seed in any::<u64>(),
        order in prop_oneof![
            Just(AccessOrder::Uniform),
            Just(AccessOrder::Random),
            (0.1..3.0_f64).prop_map(|theta| AccessOrder::Zipf { theta }),
            (1.0..100.0_f64, 0.0..100.0_f64).prop_map(|(hot_percent, access_percent)| AccessOrder::Hotspot { hot_percent, access_percent }),
        ],
        unit in prop_oneof![Just(TouchUnit::File), Just(TouchUnit::Block)],
    ) {
        let layout = Layout { files, sizes, ..Layout::default() };
        let work = LoadWork { unit, order, amount: Amount::Draws(draws), block_bytes: 16, seed, ..LoadWork::default() };
        let seen = touches(&layout, &work, &ClientSet { clients: 2, ..ClientSet::default() });
        let all = reads(&seen.into_values().flatten().collect::<Vec<_>>());
        // The permutation keeps its empty slots; a draw does not fall on one.
        prop_assert!(all.len() as u64 == draws || (order == AccessOrder::Random && unit == TouchUnit::Block));
        for (file, offset, length) in all {
            prop_assert!(file < files && offset + length <= layout.size_of(file));
        }
    }
}

#[test]
fn zipf_frequencies_follow_the_law() {
    const DRAWS: u64 = 200_000;
    for theta in [0.5, 0.99, 1.0, 1.5] {
        let n = 50_u64;
        let mut counts = vec![0_u64; n as usize];
        for draw in 0..DRAWS {
            counts[zipf(n, theta, mix_all(&[5, draw])) as usize] += 1;
        }
        let sum: f64 = (1..=n).map(|k| (k as f64).powf(-theta)).sum();
        for (rank, count) in counts.iter().enumerate() {
            let wanted = (rank as f64 + 1.0).powf(-theta) / sum * DRAWS as f64;
            // Five standard deviations of a binomial count; the draws are fixed, so this never wavers.
            let room = 5.0 * wanted.sqrt() + 5.0;
            assert!((*count as f64 - wanted).abs() < room, "theta {theta} rank {rank}: {count} of {wanted}");
        }
    }
}

#[test]
fn zipf_takes_the_smallest_and_the_largest_sets() {
    for n in [1, 2, 1 << 40] {
        for theta in [1e-6, 0.99, 1.0 + 1e-12, 10.0] {
            assert!((0..1000).all(|draw| zipf(n, theta, mix_all(&[1, draw])) < n), "{n} {theta}");
        }
    }
}
