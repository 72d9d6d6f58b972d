use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use types::{BLOCK_SIZE, ByteRange, Distance, FileId, JunctionId, NodeId, OutageReason, Version};

use super::*;

/// Random numbers from a seed that is printed, and can be given as `FOREBAY_SEED`.
struct Dice(u64);

impl Dice {
    fn new() -> Dice {
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        let seed = match std::env::var("FOREBAY_SEED") {
            Ok(seed) => seed.parse().expect("a number"),
            Err(_) => time.as_nanos() as u64 | 1,
        };
        println!("FOREBAY_SEED={seed}");
        Dice(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn bytes(&mut self, length: u64) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }

    fn file(&mut self) -> FileId {
        FileId(((u128::from(self.next())) << 64 | u128::from(self.next())).to_be_bytes())
    }

    fn version(&mut self) -> Version {
        Version(self.file().0)
    }

    fn reference(&mut self) -> Bytes {
        let length = [0, 1, 60, 4160, REFERENCE_MAX as u64][self.below(5) as usize];
        self.bytes(length).into()
    }

    fn copies(&mut self) -> Option<ToldCopies> {
        let copies = Some(self.below(17) as u8).filter(|copies| *copies > 0);
        (self.below(3) > 0).then(|| ToldCopies { revision: self.next(), copies })
    }

    fn read(&mut self) -> ReadRequest {
        let size = self.below(1 << 40) + 1;
        let first = self.below(size.div_ceil(BLOCK_SIZE));
        let blocks = self.below(READ_MAX / BLOCK_SIZE) + 1;
        ReadRequest {
            file: self.file(),
            version: self.version(),
            size,
            range: ByteRange::new(first * BLOCK_SIZE, blocks * BLOCK_SIZE).clamp_to(size),
            junction: JunctionId(self.next() as u32),
            reference: self.reference(),
            role: [ReadRole::Rank, ReadRole::Primary, ReadRole::Holder][self.below(3) as usize],
            hops: self.below(3) as u8,
            urgency: [ReadUrgency::Demand, ReadUrgency::Ahead, ReadUrgency::Warm][self.below(3) as usize],
            map: self.next(),
            copies: self.copies(),
        }
    }

    fn call(&mut self) -> PeerCall {
        let (file, version) = (self.file(), self.version());
        match self.below(7) {
            0 => PeerCall::Read(self.read()),
            1 => {
                let (size, first, stripes) =
                    (self.next(), self.next() >> 20, self.below(HAVE_STRIPES_MAX) + 1);
                let junction = self.below(3).checked_sub(1).map(|id| JunctionId(id as u32));
                PeerCall::Have(HaveRequest { file, version, size, junction, first, stripes })
            }
            2 => PeerCall::Ping(Heartbeat {
                node: NodeId(self.next()),
                incarnation: self.next(),
                map: self.next(),
                build: "0.1.0 (\u{e9}\"\\)".to_owned(),
                figures: NodeFigures {
                    cached: self.next(),
                    far_bytes: self.next(),
                    ..NodeFigures::default()
                },
            }),
            3 => {
                let files = self.below(NOTICE_FILES_MAX as u64 + 1);
                PeerCall::Notice(ChangeNotice { files: (0..files).map(|_| self.file()).collect() })
            }
            4 => {
                let filled = self.below(FEED_MAX as u64 + 1);
                let stripe = |dice: &mut Dice| FilledStripe {
                    file: dice.file(),
                    version: dice.version(),
                    size: dice.next(),
                    junction: JunctionId(dice.next() as u32),
                    reference: dice.reference(),
                    stripe: dice.next(),
                    percent: dice.below(101) as u8,
                    reason: [FeedReason::Held, FeedReason::Read, FeedReason::Filled][dice.below(3) as usize],
                    copies: dice.copies(),
                };
                PeerCall::Feed(FeedNotice { filled: (0..filled).map(|_| stripe(self)).collect() })
            }
            5 => PeerCall::Path(PathRequest { junction: JunctionId(self.next() as u32), file }),
            _ => {
                let blocks = self.below(CORRUPT_BLOCKS_MAX as u64 + 1);
                let blocks = (0..blocks).map(|_| self.next()).collect();
                PeerCall::Corrupt(CorruptReport { file, version, size: self.next(), blocks })
            }
        }
    }
}

fn head_bytes(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum()
}

#[test]
fn each_call_is_read_back_and_is_within_the_bounds() {
    let mut dice = Dice::new();
    for _ in 0..1000 {
        let call = dice.call();
        let deadline = Duration::from_millis(dice.below(1_000_000));
        let (parts, body) = call.encode(deadline).expect("it is within its bounds").into_parts();
        assert!(head_bytes(&parts.headers) + 200 < HEAD_MAX && body.len() <= SMALL_BODY_MAX);
        assert_eq!(PeerCall::decode(&parts, &body).expect("what was written is read"), call);
        assert_eq!(deadline_of(&parts).expect("there is one"), deadline.min(DEADLINE_MAX));
    }
    let largest = FilledStripe {
        file: dice.file(),
        version: dice.version(),
        size: u64::MAX,
        junction: JunctionId(u32::MAX),
        reference: dice.bytes(REFERENCE_MAX as u64).into(),
        stripe: u64::MAX,
        percent: 100,
        reason: FeedReason::Filled,
        copies: Some(ToldCopies { revision: u64::MAX, copies: Some(u8::MAX) }),
    };
    let feed = FeedNotice { filled: vec![largest; FEED_MAX] };
    assert!(feed.encode().expect("within its bounds").len() <= SMALL_BODY_MAX);
}

#[test]
fn answers_are_read_back() {
    let mut dice = Dice::new();
    for _ in 0..500 {
        let request = dice.read();
        let far = Distance { latency: Duration::from_micros(dice.below(1 << 40)), rate: dice.next() };
        let head = ReadHead {
            checksums: request.range.blocks().map(|_| dice.next() as u32).collect(),
            served_from: [ServedFrom::Hit, ServedFrom::Filled, ServedFrom::Origin][dice.below(3) as usize],
            distance: Some(far).filter(|far| far.rate % 3 > 0),
            map: dice.next(),
            hot: Some(HotStripe {
                ranks: dice.next() as u8,
                lasts: Duration::from_millis(dice.below(1 << 40)),
            })
            .filter(|hot| hot.ranks % 2 > 0),
        };
        let mut answer = head.encode(&request).body(()).expect("it can be written");
        answer.headers_mut().insert(header::CONTENT_LENGTH, request.range.length.into());
        assert_eq!(ReadHead::decode(&request, answer.headers()).expect("read back"), head);
        let other = ReadRequest { size: request.size + BLOCK_SIZE, ..request.clone() };
        assert!(ReadHead::decode(&other, answer.headers()).is_err(), "it is about another file's bytes");
        answer.headers_mut().insert(header::CONTENT_LENGTH, (request.range.length + 1).into());
        assert!(ReadHead::decode(&request, answer.headers()).is_err(), "its length is another");
    }
    let (file, version) = (dice.file(), dice.version());
    let asked = HaveRequest { file, version, size: 1 << 40, junction: None, first: 3, stripes: 3 };
    let blocks = vec![StripeBlocks::of(0..1024), StripeBlocks::default(), StripeBlocks::of(9..388)];
    let percent = vec![100, 0, 37];
    let other = OtherVersion::Held;
    let answer = HaveAnswer { map: 7, percent, blocks, has_room: true, other };
    let body = answer.encode(&asked).expect("it is about three stripes");
    assert_eq!(HaveAnswer::decode(&asked, &body).expect("read back"), answer);
    let fewer = HaveRequest { stripes: 2, ..asked };
    assert!(HaveAnswer::decode(&fewer, &body).is_err() && answer.encode(&fewer).is_err());
    assert!(HaveAnswer::decode(&asked, br#"{"map":7,"percent":[100,0,101]}"#).is_err());
    let shorter = HaveAnswer { blocks: vec![StripeBlocks::default()], ..answer };
    assert!(
        shorter.encode(&asked).is_err(),
        "the blocks are of as many stripes as were asked about, or of none"
    );
    let earlier =
        HaveAnswer::decode(&asked, br#"{"map":7,"percent":[100,0,37]}"#).expect("an earlier version");
    assert!(earlier.blocks.is_empty() && !earlier.has_room);
}

#[test]
fn an_error_comes_back_as_the_same_kind_with_its_reason() {
    for kind in refusal::KINDS {
        let error = Error::new(*kind, "read", "x".repeat(600) + "\u{e9}");
        let answer = encode_refusal(&error);
        assert!(answer.status().is_client_error() || answer.status().is_server_error());
        assert!(answer.body().len() <= 512);
        let back = decode_refusal(NodeId(1), answer.status(), answer.headers(), answer.body());
        assert_eq!(back.kind(), *kind);
        assert!(back.to_string().contains("node 0000000000000001 says: read xxx"), "{back}");
    }
    for reason in OutageReason::ALL {
        let answer = encode_refusal(&Error::outage(reason, "read", "\u{e9}".repeat(400)));
        let back = decode_refusal(NodeId(1), answer.status(), answer.headers(), answer.body());
        assert_eq!((back.kind(), back.outage_reason()), (ErrorKind::Unavailable, Some(reason)));
    }
    let strange = decode_refusal(NodeId(1), StatusCode::NOT_FOUND, &HeaderMap::new(), b"<html>");
    assert_eq!(strange.kind(), ErrorKind::Unavailable, "an answer of something else is no absence");
    let mut later = HeaderMap::new();
    later.insert(fields::ERROR, HeaderValue::from_static("Quenched"));
    assert_eq!(decode_refusal(NodeId(1), StatusCode::OK, &later, b"").kind(), ErrorKind::Unavailable);
}

#[test]
fn what_no_read_can_be_is_refused() {
    let good = ReadRequest { size: 10 * BLOCK_SIZE + 5, ..Dice::new().read() };
    let good = ReadRequest { range: ByteRange::new(9 * BLOCK_SIZE, BLOCK_SIZE + 5), hops: 2, ..good };
    good.check().expect("the file's end is the end of a block");
    let ranges = [
        (0, 0),
        (1, BLOCK_SIZE),
        (0, BLOCK_SIZE - 1),
        (9 * BLOCK_SIZE, BLOCK_SIZE + 4),
        (9 * BLOCK_SIZE, 2 * BLOCK_SIZE),
        (0, READ_MAX + BLOCK_SIZE),
        (u64::MAX / BLOCK_SIZE * BLOCK_SIZE, BLOCK_SIZE),
    ];
    for (first, length) in ranges {
        let wrong = ReadRequest { range: ByteRange::new(first, length), ..good.clone() };
        assert!(wrong.check().is_err(), "{length} bytes from {first}");
    }
    let wrong = [
        ReadRequest { hops: 3, ..good.clone() },
        ReadRequest { copies: Some(ToldCopies { revision: 1, copies: Some(0) }), ..good.clone() },
        ReadRequest { reference: vec![0; REFERENCE_MAX + 1].into(), ..good },
    ];
    for wrong in wrong {
        assert!(PeerCall::Read(wrong).encode(Duration::ZERO).is_err());
    }
}

/// Decodes whatever it is as everything.
fn decode_all(parts: &Parts, body: &[u8], asked: &ReadRequest, have: &HaveRequest) {
    let _ = PeerCall::decode(parts, body);
    let _ = deadline_of(parts);
    let _ = ReadHead::decode(asked, &parts.headers);
    let _ = HaveAnswer::decode(have, body);
    let _ = decode_refusal(NodeId(1), StatusCode::OK, &parts.headers, body);
}

#[test]
fn damaged_and_random_messages_never_panic() {
    let mut dice = Dice::new();
    let asked = dice.read();
    let (file, version) = (dice.file(), dice.version());
    let have = HaveRequest { file, version, size: 1, junction: None, first: 0, stripes: 1 };
    let alphabet = b"0123456789abcdefABCDEF-/=,. {}[]\":bytes\xff\xe9";
    let mut refused = 0;
    for _ in 0..1500 {
        let (mut parts, body) = dice.call().encode(Duration::from_secs(1)).expect("good").into_parts();
        let mut body = body.to_vec();
        for _ in 0..=dice.below(3) {
            match dice.below(6) {
                0 => body.truncate(dice.below(body.len() as u64 + 1) as usize),
                1 if !body.is_empty() => {
                    let at = dice.below(body.len() as u64) as usize;
                    body[at] = dice.next() as u8;
                }
                2 => {
                    let path = parts.uri.path();
                    let cut = path[..dice.below(path.len() as u64) as usize + 1].to_owned();
                    parts.uri = cut.parse().expect("a path's beginning is one");
                }
                3 => {
                    body = {
                        let length = dice.below(200);
                        dice.bytes(length)
                    }
                }
                _ if parts.headers.is_empty() => {}
                _ => {
                    let names: Vec<HeaderName> = parts.headers.keys().cloned().collect();
                    let name = &names[dice.below(names.len() as u64) as usize];
                    let value: Vec<u8> = (0..dice.below(40))
                        .map(|_| alphabet[dice.below(alphabet.len() as u64) as usize])
                        .collect();
                    match HeaderValue::from_bytes(&value) {
                        Ok(value) if dice.below(3) > 0 => drop(parts.headers.insert(name, value)),
                        _ => drop(parts.headers.remove(name)),
                    }
                }
            }
        }
        refused += usize::from(PeerCall::decode(&parts, &body).is_err());
        decode_all(&parts, &body, &asked, &have);
    }
    assert!(refused > 500, "only {refused} were damaged: this test shows nothing");
}
