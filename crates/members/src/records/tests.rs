use super::*;

fn node() -> NodeRecord {
    NodeRecord {
        name: "n1".to_owned(),
        addresses: vec!["10.0.0.1:7423".parse().expect("an address")],
        admin: None,
        nfs: None,
        weight: 20 << 40,
        label: "/dc1/rack2".parse().expect("a label"),
        state: NodeState::Up,
        out_reason: None,
        build: "0.9.0".to_owned(),
        wire: 1,
    }
}

#[test]
fn a_record_is_one_line_of_json_and_comes_back() {
    let text = String::from_utf8(write_record(&node()).expect("JSON")).expect("text");
    assert_eq!(
        text,
        "{\"v\":1,\"name\":\"n1\",\"addresses\":[\"10.0.0.1:7423\"],\"admin\":null,\"weight\":21990232555520,\
         \"label\":\"/dc1/rack2\",\"state\":\"up\",\"build\":\"0.9.0\",\"wire\":1}"
    );
    assert_eq!(read_record::<NodeRecord>(text.as_bytes()).expect("it is good"), node());
    let served = NodeRecord { nfs: Some("0.0.0.0:2049".parse().expect("an address")), ..node() };
    let bytes = write_record(&served).expect("JSON");
    assert_eq!(read_record::<NodeRecord>(&bytes).expect("it is good"), served);
    let silent = node().in_state(NodeState::Out, Some(OutReason::Silent));
    let bytes = write_record(&silent).expect("JSON");
    assert_eq!(read_record::<NodeRecord>(&bytes).expect("it is good"), silent);
    let differs = [(7, "abc".to_owned())].into();
    let alive = AliveRecord { incarnation: Incarnation(0xabc), differs };
    let bytes = write_record(&alive).expect("JSON");
    assert_eq!(read_record::<AliveRecord>(&bytes).expect("it is good"), alive);
}

#[test]
fn what_is_new_is_passed_over_and_another_version_is_not() {
    let more = b"{\"v\":1,\"incarnation\":\"00000000000000ff\",\"later\":{\"a\":[1]}}";
    assert_eq!(read_record::<AliveRecord>(more).expect("it is good").incarnation, Incarnation(255));
    let later = read_record::<AliveRecord>(b"{\"v\":2,\"anything\":0}").expect_err("it is another version");
    assert!(later.to_string().contains("its version is 2; this version of Forebay reads 1"), "{later}");
    let long = vec![b' '; RECORD_BYTES_MAX + 1];
    assert_eq!(read_record::<AliveRecord>(&long).expect_err("too long").kind(), ErrorKind::Corrupt);
}

#[test]
fn altered_bytes_give_a_record_or_an_error() {
    let good = write_record(&node()).expect("JSON");
    for at in 0..good.len() {
        for with in [0, b'"', b'{', b'9', 0xff] {
            let mut bad = good.clone();
            bad[at] = with;
            let _ = read_record::<NodeRecord>(&bad);
        }
        let _ = read_record::<NodeRecord>(&good[..at]);
    }
}

#[test]
fn a_password_is_not_put_into_etcd() {
    check_junction("/show", "https://bucket.example/a@b:c", "d").expect("there is none in it");
    check_junction("/show", "nfs://user@nas/export", "d").expect("a name is no secret");
    for (path, url) in [("/show", "https://key:secret@host/bucket"), ("show", "nfs://nas/x"), ("/show", "")] {
        let error = check_junction(path, url, "d").expect_err(url);
        assert!(!error.to_string().contains("secret@"), "{error}");
    }
}
