use super::*;

const ID: JournalId = *b"0123456789abcdef";

fn header() -> Header {
    Header { journal: ID, number: 7, first_sequence: 1 << 40, previous_end: 4096, size: 64 << 20 }
}

fn frame() -> RecordFrame {
    RecordFrame {
        kind: RecordKind::Entry,
        sequence: 0x0102_0304_0506_0708,
        head_length: 5,
        data_length: 4,
        head_crc: 1,
        data_crc: 2,
        covered: 64,
        written_ms: 0x11,
    }
}

fn place(segment: u64, offset: u64) -> RecordPlace<'static> {
    RecordPlace { journal: &ID, segment, offset }
}

#[test]
fn a_header_is_believed_to_the_bit() {
    let bytes = header().encode();
    assert_eq!(Header::decode(&bytes), Ok(header()));
    for bit in 0..bytes.len() * 8 {
        let mut other = bytes;
        other[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Header::decode(&other), Err(BadHeader::Damaged), "bit {bit}");
    }
    for length in 0..bytes.len() {
        assert_eq!(Header::decode(&bytes[..length]), Err(BadHeader::Damaged));
    }
}

#[test]
fn a_header_of_another_format_tells_who_wrote_it() {
    let mut bytes = header().encode();
    bytes[8] = 9;
    bytes[12..24].copy_from_slice(b"7.5.3\0\0\0\0\0\0\0");
    let crc = crc32c::crc32c(&bytes[..60]);
    bytes[60..].copy_from_slice(&crc.to_le_bytes());
    let foreign = BadHeader::Foreign { format: 9, writer: "7.5.3".into() };
    assert_eq!(Header::decode(&bytes), Err(foreign));
}

#[test]
fn a_frame_is_believed_to_the_bit_and_only_in_its_place() {
    let bytes = frame().encode(place(3, 64));
    assert_eq!(RecordFrame::decode(&bytes, place(3, 64)), Some(frame()));
    for bit in 0..bytes.len() * 8 {
        let mut other = bytes;
        other[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(RecordFrame::decode(&other, place(3, 64)), None, "bit {bit}");
    }
    assert_eq!(RecordFrame::decode(&bytes, place(4, 64)), None);
    assert_eq!(RecordFrame::decode(&bytes, place(3, 72)), None);
    let other = RecordPlace { journal: &[0; 16], segment: 3, offset: 64 };
    assert_eq!(RecordFrame::decode(&bytes, other), None);
    assert_eq!(RecordFrame::decode(&bytes[..47], place(3, 64)), None);
    assert_eq!(RecordFrame::decode(&[0; 48], place(3, 64)), None);
}

#[test]
fn lengths_beyond_their_limits_are_no_record() {
    let long_head = RecordFrame { head_length: HEAD_MAX + 1, ..frame() };
    let long_data = RecordFrame { data_length: DATA_MAX + 1, ..frame() };
    for frame in [long_head, long_data] {
        assert_eq!(RecordFrame::decode(&frame.encode(place(0, 64)), place(0, 64)), None);
    }
}

#[test]
fn the_layout_is_the_one_that_is_written_down() {
    let bytes = header().encode();
    assert_eq!(&bytes[..8], b"FBAYJRNL");
    assert_eq!(bytes[8..12], [1, 0, 0, 0]);
    assert_eq!(&bytes[24..40], &ID);
    assert_eq!(bytes[40..44], [7, 0, 0, 0]);
    assert_eq!(bytes[44..52], [0, 0, 0, 0, 0, 1, 0, 0]);
    assert_eq!(bytes[52..60], [0, 16, 0, 0, 0, 0, 0, 4]);
    let bytes = frame().encode(place(0, 64));
    assert_eq!(&bytes[..8], b"FBjr\x01\0\0\0");
    assert_eq!(bytes[8..16], [8, 7, 6, 5, 4, 3, 2, 1]);
    assert_eq!(bytes[16..36], [5, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 64, 0, 0, 0]);
    assert_eq!(bytes[36..44], [0x11, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!((frame().span(), frame().data_at()), (64, 53));
}

#[test]
fn names_are_read_back_and_others_are_not_ours() {
    for number in [0, 1, 99_999_999, 100_000_000, u64::from(u32::MAX)] {
        assert_eq!(parse_name(&name(number)), Some(number));
        assert!(is_unborn(&unborn_name(number)));
    }
    let wrong = ["", ".journal", "1.journal", "000000001.journal", "+0000001.journal", "99999999999.journal"];
    wrong.iter().for_each(|name| assert_eq!(parse_name(name), None, "{name}"));
}
