//! Where the bytes of a database lie in its file, and their checksums. Pure. docs/design/disk-format.md has the diagrams.

pub const PAGE: u64 = 4096;
/// Pages whose checksums are together in the page before them.
pub const GROUP: u64 = 1024;
/// What a disk writes whole or not at all.
pub const SECTOR: usize = 512;
/// Of the file: its head, then the database's header, a sector each.
pub const HEAD: u64 = PAGE;
/// Bytes of the database's header at most; its checksum follows.
pub const HEADER: usize = SECTOR - 4;

const MAGIC: [u8; 8] = *b"FBAYPAGE";
const FORMAT: u32 = 1;

pub type Group = [u32; GROUP as usize];

/// The file's first sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Which database it is.
    pub kind: [u8; 16],
    /// Random: pages of another file do not pass.
    pub id: [u8; 16],
}

pub fn kind(name: &str) -> [u8; 16] {
    let mut kind = [0; 16];
    kind.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
    kind
}

impl Head {
    pub fn encode(&self) -> [u8; SECTOR] {
        let mut bytes = [0; SECTOR];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[12..28].copy_from_slice(&self.kind);
        bytes[28..44].copy_from_slice(&self.id);
        let sum = crc32c::crc32c(&bytes[..HEADER]);
        bytes[HEADER..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8; SECTOR]) -> Option<Head> {
        let head = Head { kind: *bytes[12..].first_chunk()?, id: *bytes[28..].first_chunk()? };
        (head.encode() == *bytes).then_some(head)
    }
}

/// Of a page at its place; never 0, which stands for a page that was never written.
pub fn sum(id: &[u8; 16], page: u64, bytes: &[u8]) -> u32 {
    let place = crc32c::crc32c_append(crc32c::crc32c(id), &page.to_le_bytes());
    crc32c::crc32c_append(place, bytes).max(1)
}

/// The database's header in the sector that it is written in.
pub fn close_sector(id: &[u8; 16], from: usize, data: &[u8]) -> Option<[u8; SECTOR]> {
    let mut sector = [0; SECTOR];
    if from != 0 {
        return None; // a header is written whole
    }
    sector[..HEADER].get_mut(..data.len())?.copy_from_slice(data);
    let sum = sum(id, 0, &sector[..HEADER]);
    sector[HEADER..].copy_from_slice(&sum.to_le_bytes());
    Some(sector)
}

/// `None`: it is not what was written. A sector of zeros was never written.
pub fn open_sector<'a>(id: &[u8; 16], sector: &'a [u8; SECTOR]) -> Option<&'a [u8]> {
    let (header, noted) = sector.split_at(HEADER);
    let right = noted == sum(id, 0, header).to_le_bytes() || sector.iter().all(|byte| *byte == 0);
    right.then_some(header)
}

/// Where the checksums of a group are.
pub fn sums_at(group: u64) -> u64 {
    HEAD + group * (GROUP + 1) * PAGE
}

pub fn page_at(page: u64) -> u64 {
    sums_at(page / GROUP) + (1 + page % GROUP) * PAGE
}

/// Length of the file with so many bytes of the database.
pub fn physical(length: u64) -> u64 {
    match length {
        0 => HEAD,
        _ => page_at((length - 1) / PAGE) + (length - 1) % PAGE + 1,
    }
}

/// Bytes of the database in a file of this length.
pub fn logical(length: u64) -> u64 {
    let stored = length.saturating_sub(HEAD);
    let (groups, rest) = (stored / ((GROUP + 1) * PAGE), stored % ((GROUP + 1) * PAGE));
    groups * GROUP * PAGE + rest.saturating_sub(PAGE)
}
