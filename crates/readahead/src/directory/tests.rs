use super::*;

fn id(n: usize) -> FileId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&(n as u64).to_le_bytes());
    FileId(id)
}

fn directory(files: usize) -> Directory {
    let mut directory = Directory::default();
    let by_name: Vec<FileId> = (0..files).map(id).collect();
    let mut by_cookie = by_name.clone();
    by_cookie.sort_by_key(|id| {
        u64::from_le_bytes(id.0[..8].try_into().unwrap()).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    });
    directory.set_files(by_name, by_cookie);
    directory
}

/// What `visits` make fetch, each once, with how many visits had been made.
fn walk(directory: &mut Directory, visits: impl IntoIterator<Item = usize>) -> HashMap<FileId, usize> {
    let mut fetched = HashMap::new();
    for (turn, file) in visits.into_iter().enumerate() {
        directory.used(id(file));
        for (_, _, file) in directory.visit(id(file)) {
            if !directory.is_pending(file) {
                directory.fetched(file, 1);
                fetched.entry(file).or_insert(turn);
            }
        }
    }
    fetched
}

#[test]
fn who_reads_by_name_finds_all_but_the_first_file_there() {
    let fetched = walk(&mut directory(200), 0..200);
    for file in 1..200 {
        assert!(
            fetched.get(&id(file)).is_some_and(|turn| *turn < file),
            "{file}: {:?}",
            fetched.get(&id(file))
        );
    }
}

#[test]
fn who_begins_in_the_middle_is_believed_from_the_second_file_on() {
    let fetched = walk(&mut directory(200), 50..200);
    assert!(!fetched.contains_key(&id(51)), "one read is no order");
    assert_eq!(fetched.get(&id(52)), Some(&1));
    assert!(fetched.get(&id(100)).is_some_and(|turn| *turn <= 3), "{:?}", fetched.get(&id(100)));
    assert!((0..50).all(|file| !fetched.contains_key(&id(file))), "nothing behind it");
}

#[test]
fn the_order_of_the_listing_and_the_order_of_last_time_are_orders_too() {
    let mut by_cookie = directory(300);
    let order: Vec<usize> = by_cookie.orders[1]
        .files
        .iter()
        .map(|id| u64::from_le_bytes(id.0[..8].try_into().unwrap()) as usize)
        .collect();
    let fetched = walk(&mut by_cookie, order.clone());
    let foreseen =
        order.iter().enumerate().filter(|(turn, file)| fetched.get(&id(**file)).is_some_and(|t| t < turn));
    assert!(foreseen.count() >= 297);

    let mut seed = 1_u64;
    let mut shuffled: Vec<usize> = (0..300).collect();
    for at in (1..300).rev() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        shuffled.swap(at, (seed >> 33) as usize % (at + 1));
    }
    let mut again = directory(300);
    let first = walk(&mut again, shuffled.clone());
    again.pending.clear();
    again.pending_bytes = 0;
    let second = walk(&mut again, shuffled.clone());
    let foreseen = |fetched: &HashMap<FileId, usize>| {
        shuffled
            .iter()
            .enumerate()
            .filter(|(turn, file)| fetched.get(&id(**file)).is_some_and(|t| t < turn))
            .count()
    };
    assert!(foreseen(&second) >= 290, "{} of 300 (the first time {})", foreseen(&second), foreseen(&first));
}

#[test]
fn nodes_that_read_the_same_order_side_by_side_are_one_walker() {
    let mut directory = directory(100);
    let fetched = walk(&mut directory, (0..100).flat_map(|file| [file; 8]));
    assert!((1..100).all(|file| fetched.contains_key(&id(file))));
    let mut late = super::tests::directory(100);
    // One node is five files behind.
    let visits = (0..100_usize).flat_map(|file| [Some(file), file.checked_sub(5)]).flatten();
    let fetched = walk(&mut late, visits);
    assert!((1..100).all(|file| fetched.contains_key(&id(file))));
}

#[test]
fn who_reads_at_random_in_a_large_directory_is_left_alone() {
    let mut seed = 1_u64;
    let visits: Vec<usize> = (0..500)
        .map(|_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            1 + (seed >> 33) as usize % 19_999
        })
        .collect();
    let fetched = walk(&mut directory(20_000), visits);
    assert!(fetched.len() <= 25, "{} fetched for 500 read", fetched.len());
}

#[test]
fn wrong_guesses_end_the_guessing_and_right_ones_take_it_up_again() {
    let mut account = PrefetchAccount::default();
    while account.allows(1 << 20) {
        account.fetched(1 << 20);
    }
    assert_eq!(account.fetched, PrefetchAccount::START);
    account.used(1 << 20);
    let mut more = 0;
    while account.allows(1 << 20) {
        account.fetched(1 << 20);
        more += 1;
    }
    assert_eq!(more, 4);
}

#[test]
fn what_could_not_be_fetched_is_wanted_again() {
    let mut directory = directory(100);
    let wanted = directory.visit(id(0));
    assert_eq!(wanted.iter().filter(|(order, ..)| *order == 0).count(), DEPTH_AT_START);
    directory.stopped_at(0, 3);
    let again = directory.visit(id(1));
    assert!(again.iter().any(|(order, at, _)| (*order, *at) == (0, 3)), "{again:?}");
}

#[test]
fn names_stand_in_the_order_in_which_people_count() {
    let mut names: Vec<&[u8]> = vec![b"f10", b"f9", b"a", b"f0011", b"f", b"10", b"9", b"f9b", b"f9a1", b""];
    names.sort_by_key(|name| natural_order(name));
    let expected: [&[u8]; 10] = [b"", b"9", b"10", b"a", b"f", b"f9", b"f9a1", b"f9b", b"f10", b"f0011"];
    assert_eq!(names, expected);
}
