//! The link test over lines whose width is known.

use std::net::SocketAddr;
use std::time::Duration;

use bench::link::{Config, LinkServer, Pair, StreamDirection, run};
use bench_report::model::{Cell, ResultFile, TableRow};
use quantity::ByteRate;
use relay::Relay;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::{any, ms, number, quiet};

async fn agent(token: Option<&str>) -> LinkServer {
    LinkServer::bind(any(), token.map(str::to_owned)).await.expect("bound")
}

fn line(to: SocketAddr, rtt: Duration, mbit: u64) -> Relay {
    let config =
        relay::Config { rtt, rate: Some(ByteRate::from_bits(mbit * 1_000_000)), ..relay::Config::default() };
    Relay::bind(any(), to, config).expect("bound")
}

fn pair(to: SocketAddr) -> Pair {
    Pair { from: None, to: to.to_string() }
}

/// Short, but longer than what the buffers of the line hold.
fn config(pairs: Vec<Pair>) -> Config {
    Config {
        pairs,
        streams: Some(2),
        streams_together: Some(2),
        time: ms(1500),
        omit: ms(500),
        repetitions: 1,
        ..Config::default()
    }
}

/// Of the extended table.
fn rows(file: &ResultFile) -> &[TableRow] {
    &file.tables[1].rows
}

/// Not a number where the streams did not run together.
fn receiver(row: &TableRow) -> f64 {
    match &row.cells[4] {
        Cell::Missing(_) => f64::NAN,
        cell => number(cell),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_width_and_the_length_of_a_line_are_measured_in_both_directions() {
    let _quiet = quiet().await;
    let agent = agent(None).await;
    let relay = line(agent.local_addr(), ms(10), 100);
    // Other work on the machine may take the line's time: once in each direction is asked for.
    let (mut seen, mut there, mut back) = (Vec::new(), false, false);
    for _ in 0..6 {
        let file = run(config(vec![pair(relay.local_addr())])).await.expect("measured");
        assert_eq!(file.tables[0].columns, ["Bandwidth", "Sender", "Receiver"]);
        assert_eq!(rows(&file).len(), 2, "there and back");
        for row in rows(&file) {
            let (idle, loaded) = (number(&row.cells[8]), number(&row.cells[9]));
            assert!(idle >= 10.0 && loaded >= 10.0, "nothing is faster than the line: {row:?}");
        }
        let rates: Vec<f64> = rows(&file).iter().map(receiver).collect();
        assert!(!rates.iter().any(|rate| *rate > 106.0), "more than the line carries: {rates:?}");
        (there, back) = (there || rates[0] > 94.0, back || rates[1] > 94.0);
        if there && back {
            return;
        }
        seen.push(rates);
    }
    panic!("100 Mbit/s were never seen: {seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pairs_on_one_line_share_it_and_are_measured_together() {
    let _quiet = quiet().await;
    let agent = agent(None).await;
    let relay = line(agent.local_addr(), ms(4), 100);
    // The same line under two names.
    let by_name = Pair { from: None, to: format!("localhost:{}", relay.local_addr().port()) };
    let pairs = vec![pair(relay.local_addr()), by_name];
    let mut seen = Vec::new();
    for _ in 0..6 {
        let file =
            run(Config { ways: vec![StreamDirection::Up], ..config(pairs.clone()) }).await.expect("measured");
        let all = &file.tables[0].rows.last().expect("all pairs").cells;
        assert!(matches!(&all[0], Cell::Text(name) if name.contains("all pairs at once")), "{all:?}");
        let rates = match &all[2] {
            Cell::Text(text) => text.trim_end_matches(" Mbits/sec").parse::<f64>().expect("a rate"),
            // Streams that did not run together are not added: try again.
            refused => {
                seen.push(format!("{refused:?}"));
                continue;
            }
        };
        assert!(rates < 106.0, "two pairs carry no more than the line: {rates}");
        if rates > 90.0 {
            let together = &rows(&file)[2..];
            assert!(together.iter().all(|row| receiver(row) < 75.0), "they share it: {together:?}");
            return;
        }
        seen.push(rates.to_string());
    }
    panic!("{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pair_of_two_other_machines_is_run_from_here() {
    let _quiet = quiet().await;
    let (from, to) = (agent(Some("secret")).await, agent(None).await);
    let far = Pair { from: Some(from.local_addr().to_string()), to: to.local_addr().to_string() };
    let quick = Config {
        token: Some("secret".to_owned()),
        ways: vec![StreamDirection::Up, StreamDirection::Down],
        ..config(vec![far])
    };
    let mut seen = Vec::new();
    for _ in 0..6 {
        let file = run(quick.clone()).await.expect("measured");
        let cells: Vec<&Cell> = rows(&file).iter().map(|row| &row.cells[4]).collect();
        if cells.iter().all(|cell| matches!(cell, Cell::Estimate { median, .. } if *median > 100.0)) {
            return;
        }
        seen.push(format!("{cells:?}"));
    }
    panic!("{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_sends_to_others_only_for_who_knows_its_token() {
    let to = agent(None).await;
    for (token, why) in [(None, "without --token"), (Some("another"), "token is another one")] {
        let from = agent(token).await;
        let far = Pair { from: Some(from.local_addr().to_string()), to: to.local_addr().to_string() };
        let error = run(Config { token: Some("secret".to_owned()), ..config(vec![far]) }).await;
        let error = error.expect_err("refused").to_string();
        assert!(error.contains(why) && !error.contains("secret"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_survives_nonsense_and_a_client_names_what_is_no_agent() {
    let agent = agent(None).await;
    let centuries = concat!(
        r#"{"stream":{"session":1,"stream":0,"way":"up","start_us":1,"stop_us":18446744073709551615}}"#,
        "\n"
    );
    for nonsense in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0xff; 64],
        &[0, 0, 0, 3, b'{', b'}', b'\n'],
        &[&[0, 0, 0, centuries.len() as u8], centuries.as_bytes()].concat(),
    ] {
        let mut stream = TcpStream::connect(agent.local_addr()).await.expect("connected");
        stream.write_all(nonsense).await.expect("sent");
        stream.shutdown().await.expect("ended");
        let mut answer = Vec::new();
        let end = tokio::time::timeout(ms(5000), stream.read_to_end(&mut answer)).await.expect("it hangs up");
        let refused = String::from_utf8_lossy(&answer).contains("refused");
        assert!(end.is_err() || answer.is_empty() || refused, "{answer:?}");
        assert_eq!(refused, nonsense.ends_with(centuries.as_bytes()), "a question that is one is answered");
    }
    let file = run(config(vec![pair(agent.local_addr())])).await.expect("it still measures");
    assert_eq!(rows(&file).len(), 2);

    let nobody = {
        let listener = tokio::net::TcpListener::bind(any()).await.expect("bound");
        listener.local_addr().expect("bound")
    };
    let error = run(config(vec![pair(nobody)])).await.expect_err("nobody is there").to_string();
    assert!(error.contains(&nobody.to_string()) && !error.contains('\n'), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_goes_away_ends_the_run_with_a_reason() {
    let agent = agent(None).await;
    let address = agent.local_addr();
    let running = tokio::spawn(run(Config { time: ms(20_000), ..config(vec![pair(address)]) }));
    tokio::time::sleep(ms(1000)).await;
    drop(agent);
    let ended = tokio::time::timeout(ms(60_000), running).await.expect("it does not hang").expect("no panic");
    assert!(ended.expect_err("the agent is gone").to_string().contains(&address.to_string()));
}
