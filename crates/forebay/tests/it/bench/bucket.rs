//! Experiments on a bucket of a real store: the study's tables, states that the counters prove, and what they cost.

use testkit::azfile::{StandIn, credentials};
use testkit::stores::{RealStore, on_an_s3_store, on_each_store};

use super::room::{Room, column, columns, findings, invalid, result, rows, table};

fn bucket(store: &RealStore) -> String {
    store.make_bucket("bucket");
    store.url("bucket", "farm", &format!("&credentials={}", store.credentials().display()))
}

async fn assert_is_empty(url: &str) {
    let config = origin_object::Config::from_url(url).expect("a bucket");
    let store = origin_object::open_store(&config).expect("a store");
    let left = store.list("", false, None, 10).await.expect("a listing");
    assert!(left.objects.is_empty(), "left behind: {:?}", left.objects);
}

/// Rows that are too short for a figure are none of these tests' matter.
fn faults(of: &serde_json::Value) -> Vec<&str> {
    invalid(of).into_iter().filter(|why| !why.contains("too short")).collect()
}

#[tokio::test]
async fn a_faithful_loader_reads_a_bucket_directly_cold_and_warm_and_tells_what_each_costs() {
    let name = "a_faithful_loader_reads_a_bucket_directly_cold_and_warm_and_tells_what_each_costs";
    on_each_store(name, |store| async move {
        let (room, url) = (Room::new(), bucket(&store));
        let mut run = vec!["loader", "--faithful", "--origin", &url, "--rtt", "10ms"];
        run.extend(["--clients", "2", "--workers", "4", "--objects", "8", "--object-size", "6MiB"]);
        run.extend(["--cost", "azure-blob-2018", "--price", "egress=0.5", "--json"]);
        let loaded = result(room.bench(&run));

        let epochs = table(&loaded, "Epochs");
        assert_eq!(columns(epochs), ["Metric", "Direct", "Cold", "Warm"]);
        assert_eq!(faults(epochs), Vec::<&str>::new(), "the counters prove the states");
        let gets = table(&loaded, "GET of objects");
        assert_eq!(
            columns(gets),
            ["GET from/how", "Object Size", "Throughput (GiB/s)", "Latency Avg (ms)", "Avg. Disk Util.(%)"]
        );
        assert_eq!(rows(gets).len(), 3);
        assert!(table(&loaded, "AIStore multihoming").is_object(), "the study's own numbers beside them");
        let metric = |name: &str, state: &str| {
            let at = column(epochs, "Metric").iter().position(|cell| cell["text"] == name).expect(name);
            column(epochs, state)[at]["estimate"]["median"].as_f64().expect("a median")
        };
        // One GET for each object and each client, and a listing for each client and directory.
        assert_eq!(metric("Calls to the storage", "Direct"), 18.0);
        let unique = 48.0 / 1024.0;
        assert!((metric("Bytes from the storage (GiB)", "Direct") - 2.0 * unique).abs() < 1e-9);
        assert!((metric("Bytes from the storage (GiB)", "Cold") - unique).abs() < unique * 0.05);
        assert_eq!(metric("Bytes from the storage (GiB)", "Warm"), 0.0);

        let costs = table(&loaded, "What a pass costs");
        let at = |what: &str| column(costs, "What").iter().position(|cell| cell["text"] == what).expect(what);
        let number =
            |state: &str, what: &str| column(costs, state)[at(what)]["number"].as_f64().expect("a number");
        assert_eq!(number("Direct", "requests that read (price of 10000)"), 16.0);
        assert_eq!(number("Direct", "requests that list (price of 10000)"), 2.0);
        assert!((number("Direct (GBP)", "GiB out") - unique).abs() < 1e-9, "2 clients at 0.5");
        assert!(number("Warm (GBP)", "all together") < number("Direct (GBP)", "all together") / 10.0);
        let told = findings(&loaded);
        assert!(told.iter().any(|text| text.contains("cold:") || text.contains("GiB/s direct")), "{told:?}");
        room.assert_nothing_is_left();
        assert_is_empty(&url).await;
    })
    .await;
}

#[tokio::test]
async fn shapes_measure_a_bucket_directly_and_through_forebay() {
    on_each_store("shapes_measure_a_bucket_directly_and_through_forebay", |store| async move {
        let (room, url) = (Room::new(), bucket(&store));
        // What all rows are made of is the same for every store; how each is read and written is not.
        match store.is_s3() {
            true => shapes_through(&room, &url, &["SFMR", "MFMR", "SFMW", "MFMW"], &["1MiB", "6MiB"]),
            false => shapes_through(&room, &url, &["MFMR", "SFMW"], &["6MiB"]),
        }
        assert_is_empty(&url).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shapes_measure_a_share_of_azure_files_directly_and_through_forebay() {
    let (stand_in, dir) = (StandIn::start(&["share"]).await, tempfile::tempdir().expect("made"));
    let url = stand_in.url("share", &format!("&credentials={}", credentials(dir.path()).display()));
    let room = Room::new();
    let measured = move || shapes_through(&room, &url, &["MFMR", "SFMW"], &["6MiB"]);
    tokio::task::spawn_blocking(measured).await.expect("measured");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loader_reads_a_share_of_azure_files_directly_cold_and_warm() {
    let (stand_in, dir) = (StandIn::start(&["share"]).await, tempfile::tempdir().expect("made"));
    let url = stand_in.url("share", &format!("&credentials={}", credentials(dir.path()).display()));
    let room = Room::new();
    let (loaded, room) = tokio::task::spawn_blocking(move || {
        let mut run = vec!["loader", "--origin", &url, "--rtt", "10ms", "-n", "1", "--json"];
        run.extend(["--clients", "2", "--workers", "4", "--objects", "8", "--object-size", "6MiB"]);
        (result(room.bench(&run)), room)
    })
    .await
    .expect("measured");
    let epochs = table(&loaded, "Epochs");
    assert_eq!(faults(epochs), Vec::<&str>::new(), "the counters prove the states");
    let from_the_store = |state: &str| {
        let at =
            column(epochs, "Metric").iter().position(|cell| cell["text"] == "Bytes from the storage (GiB)");
        column(epochs, state)[at.expect("a row")]["estimate"]["median"].as_f64().expect("a median")
    };
    let unique = 48.0 / 1024.0;
    assert!((from_the_store("Direct") - 2.0 * unique).abs() < 1e-9);
    assert!((from_the_store("Cold") - unique).abs() < unique * 0.05);
    assert_eq!(from_the_store("Warm"), 0.0);
    room.assert_nothing_is_left();
}

fn shapes_through(room: &Room, url: &str, shapes: &[&str], sizes: &[&str]) {
    let (named, all_sizes) = (shapes.join(",").to_lowercase(), sizes.join(","));
    let mut run = vec!["shapes", "--target", url, "--through", "--shape", &named, "--sizes", &all_sizes];
    run.extend(["-n", "1", "--nodes", "2", "--workers", "2", "--fleets", "1x2", "--json"]);
    let measured = result(room.bench(&run));
    for shape in shapes {
        let own = table(&measured, &format!("{shape} against the size of a file"));
        assert_eq!(rows(own).len(), sizes.len(), "{shape}");
        assert_eq!(faults(own), Vec::<&str>::new(), "{shape}");
        let both = table(&measured, &format!("{shape} directly and through Forebay"));
        assert_eq!(faults(both), Vec::<&str>::new(), "{shape}");
        for name in ["direct (MiB/s)", "through Forebay (MiB/s)"] {
            let rates = column(both, name);
            let some = |rate: &&serde_json::Value| rate["estimate"]["median"].as_f64() > Some(0.0);
            assert!(rates.iter().all(some), "{shape}: {rates:?}");
        }
    }
    assert!(table(&measured, "Azure HPC IO").is_object(), "the study's own numbers beside them");
    room.assert_nothing_is_left();
}

#[tokio::test]
async fn emulated_limits_hold_for_a_bucket_and_stand_in_every_table() {
    on_an_s3_store("emulated_limits_hold_for_a_bucket_and_stand_in_every_table", |store| async move {
        let (room, url) = (Room::new(), bucket(&store));
        let mut run =
            vec!["shapes", "--target", &url, "--limits", "file=8MiB/s", "--shape", "sfmr,mfmr,sfmw"];
        run.extend([
            "--sizes",
            "4MiB",
            "-n",
            "1",
            "--nodes",
            "2",
            "--workers",
            "2",
            "--fleets",
            "2x2",
            "--json",
        ]);
        let measured = result(room.bench(&run));
        let all = measured["tables"].as_array().expect("tables");
        let (ours, published): (Vec<_>, Vec<_>) = all.iter().partition(|table| table["published"] != true);
        assert!(ours.len() >= 3 && published.len() >= 4);
        for table in ours {
            assert!(
                table["title"].as_str().is_some_and(|title| title.ends_with("(emulated limits)")),
                "{table}"
            );
        }
        let rate = |shape: &str| {
            let of = table(&measured, &format!("{shape} against the size of a file"));
            column(of, "all workers (MiB/s)")[0]["estimate"]["median"].as_f64().expect("a rate")
        };
        // One object gives 8 MiB/s, however many read or write it; four give more than one can. How much more is the
        // machine's.
        assert!(rate("SFMR") <= 8.5 && rate("SFMW") <= 8.5, "{} {}", rate("SFMR"), rate("SFMW"));
        assert!(rate("MFMR") > 9.0 && rate("MFMR") <= 34.0, "{}", rate("MFMR"));
        room.assert_nothing_is_left();
    })
    .await;
}
