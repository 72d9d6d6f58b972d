use super::*;

#[test]
fn a_sentence_has_what_an_operator_needs() {
    let other = ClusterAlarm::OtherCluster { found: ClusterId(0xf), own: ClusterId(0xa) };
    let urls = [("nfs://a/x", "n1"), ("nfs://b/x", "n2")];
    let urls = urls.map(|(url, name)| (url.to_owned(), vec![name.to_owned()])).into();
    let sentences = [
        (
            ClusterAlarm::EtcdUnreachable { why: "10.0.0.1:2379: refused".to_owned() },
            vec!["10.0.0.1:2379: refused"],
        ),
        (
            ClusterAlarm::EtcdRefusesWrites { why: "no space".to_owned() },
            vec!["etcd refuses writes", "no space"],
        ),
        (other, vec!["000000000000000f", "000000000000000a"]),
        (ClusterAlarm::NoCluster, vec!["cluster.json"]),
        (
            ClusterAlarm::JunctionRenumbered { path: "/show".to_owned(), was: 3, is: 4 },
            vec!["/show", "empty cache directory"],
        ),
        (
            ClusterAlarm::UrlsDiffer(UrlDifference { path: "/show".to_owned(), urls }),
            vec!["/show", "nfs://a/x on n1", "nfs://b/x on n2"],
        ),
        (
            ClusterAlarm::NameTwice { name: "n1".to_owned(), nodes: vec![NodeId(1), NodeId(2)] },
            vec!["n1", "0000000000000001", "0000000000000002"],
        ),
    ];
    for (alarm, parts) in sentences {
        let sentence = alarm.to_string();
        assert!(parts.iter().all(|part| sentence.contains(part)), "{sentence}");
        assert!(!sentence.contains("forebay "), "there is no such command: {sentence}");
    }
}
