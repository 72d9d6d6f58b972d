//! What the workloads work on, made beforehand on the local file system: a C project in a bare git repository, SQL, and a
//! tree of small files in a tar archive. The same bytes and times every time.

use std::fmt::Write;
use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use super::place::Place;

/// Sources of the project beside its main file, each with a header.
const PARTS: usize = 20;
/// Rows that the transactions change.
const ACCOUNTS: u64 = 60;
const FILES_IN_A_DIRECTORY: usize = 50;
/// Each so many'th file is not small.
const LARGE_EVERY: usize = 97;
/// Of the oldest file: 2001-09-09.
const EPOCH_SECONDS: u64 = 1_000_000_000;

/// All of it, in `input`; the tree has `files` files.
pub fn make(input: &Path, files: usize) {
    project(&input.join("project"));
    for (name, sql) in [("setup", setup()), ("many", many(0..25)), ("half", half()), ("more", many(25..35))] {
        put(&input.join(format!("{name}.sql")), &sql);
    }
    tree(&input.join("tree"), files);
    Place::Here.run(PACK, input, "");
}

/// The project in three commits, and the tree as it lies there.
const PACK: &str = r"
cd project
git init --quiet
git add . && git commit --quiet --message 'A program of many parts'
sed -i 's/ \* 31 / * 33 /' source/part5.c && git commit --quiet --all --message 'Another factor'
echo 'It sums.' >>NOTES && git commit --quiet --all --message 'A note'
git clone --quiet --bare . ../project.git
cd ..
tar --create --format=pax --pax-option=delete=atime,delete=ctime,exthdr.name=%d/%f --numeric-owner --sort=name --file tree.tar tree
";

fn put(path: &Path, contents: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().expect("in a directory")).expect("made");
    fs::write(path, contents).expect("written");
}

/// Numbers that only look random.
fn scatter(seed: u64) -> u64 {
    let mixed = (seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 20
}

fn project(dir: &Path) {
    let mut objects = String::from("OBJECTS = source/main.o");
    let (mut includes, mut calls) = (String::new(), String::new());
    for part in 0..PARTS {
        let next = (part + 1) % PARTS;
        let table: Vec<_> =
            (0..100).map(|i| (scatter(part as u64 * 1000 + i) % 65_536).to_string()).collect();
        let _ = write!(objects, " \\\n\tsource/part{part}.o");
        let _ = writeln!(includes, "#include \"part{part}.h\"");
        let _ = writeln!(calls, "    printf(\"{part} %u\\n\", part{part}({part}));");
        put(
            &dir.join(format!("include/part{part}.h")),
            format!("#pragma once\n#define WEIGHT_{part} {part}\nunsigned part{part}(unsigned seed);\n"),
        );
        put(
            &dir.join(format!("source/part{part}.c")),
            format!(
                "#include \"part{part}.h\"\n#include \"part{next}.h\"\n\
                 static const unsigned table[] = {{{}}};\n\
                 unsigned part{part}(unsigned seed) {{\n    unsigned sum = seed + WEIGHT_{part} - WEIGHT_{next};\n    \
                 for (unsigned i = 0; i < sizeof table / sizeof *table; i++) sum = sum * 31 + table[i];\n    \
                 return sum;\n}}\n",
                table.join(",")
            ),
        );
    }
    put(
        &dir.join("source/main.c"),
        format!("#include <stdio.h>\n{includes}int main(void) {{\n{calls}    return 0;\n}}\n"),
    );
    put(
        &dir.join("Makefile"),
        format!(
            "CFLAGS = -O1 -Wall -Werror -Iinclude -MMD\n{objects}\n\nprogram: $(OBJECTS)\n\t$(CC) -o $@ $^\n\n\
             -include $(OBJECTS:.o=.d)\n"
        ),
    );
    put(&dir.join(".gitignore"), "*.o\n*.d\nprogram\n");
    put(&dir.join("NOTES"), "A sum of tables.\n");
    put(&dir.join("OLD"), "Not needed any more.\n");
}

fn setup() -> String {
    let mut sql = String::from(
        "create table account (id integer primary key, amount integer, remark text);\n\
         create table entry (account integer, change integer);\ncreate index by_account on entry (account);\nbegin;\n",
    );
    for account in 1..=ACCOUNTS {
        let _ =
            writeln!(sql, "insert into account values ({account}, 1000, hex(zeroblob({})));", account * 5);
    }
    sql + "commit;\n"
}

/// Transactions that each move an amount, note it twice and grow or shrink two rows.
fn many(numbers: std::ops::Range<u64>) -> String {
    let mut sql = String::new();
    for number in numbers {
        let (from, to) = (1 + scatter(number) % ACCOUNTS, 1 + scatter(number + 500) % ACCOUNTS);
        let _ = writeln!(
            sql,
            "begin; update account set amount = amount - {number}, remark = hex(zeroblob({})) where id = {from}; \
             update account set amount = amount + {number}, remark = '' where id = {to}; \
             insert into entry values ({from}, -{number}), ({to}, {number}); commit;",
            scatter(number + 900) % 3000
        );
    }
    sql
}

/// A transaction that has changed everything, and has not ended.
fn half() -> String {
    "begin;\nupdate account set amount = -1, remark = hex(zeroblob(2000));\n\
     insert into entry select account, 0 from entry;\ndelete from account where id % 2 = 0;\nselect 'half done';\n"
        .to_owned()
}

fn tree(dir: &Path, files: usize) {
    let mut directories = vec![dir.to_owned()];
    for number in 0..files {
        let parent = dir.join(format!("d{:03}", number / FILES_IN_A_DIRECTORY));
        let path = parent.join(format!("f{:02}", number % FILES_IN_A_DIRECTORY));
        let seed = number as u64;
        let size = if number % LARGE_EVERY == 0 { 300_000 + number } else { (scatter(seed) % 6000) as usize };
        let bytes: Vec<u8> =
            (0..size).map(|i| (scatter(seed * 7919 + (i / 16) as u64) >> (i % 8)) as u8).collect();
        put(&path, bytes);
        // First whose it is: that takes setuid away.
        let owner = 1000 + scatter(seed + 1) as u32 % 5;
        chown(&path, Some(owner), Some(owner + 10)).expect("as root");
        let mode = [0o644, 0o600, 0o755, 0o400, 0o4755, 0o2711][number % 6];
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("set");
        aged(&path, seed);
        if number % FILES_IN_A_DIRECTORY == 2 {
            fs::hard_link(&path, parent.join("hard")).expect("linked");
            linked("f01", &parent.join("soft"), seed);
            linked("/nowhere/at all", &parent.join("broken"), seed + 1);
            put(&parent.join("deep/er/new\nline and \u{fc}"), b"odd");
            directories.extend([parent.join("deep/er"), parent.join("deep"), parent]);
        }
    }
    for (number, path) in directories.iter().enumerate().rev() {
        aged(path, number as u64 + 1_000_000);
    }
}

fn linked(target: &str, path: &Path, seed: u64) {
    symlink(target, path).expect("made");
    let time =
        Timespec { tv_sec: (EPOCH_SECONDS + seed) as i64, tv_nsec: (scatter(seed) % 1_000_000_000) as i64 };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).expect("set");
}

/// A time to the nanosecond, some years ago.
fn aged(path: &Path, seed: u64) {
    let nanoseconds = (scatter(seed) % 1_000_000_000) as u32;
    let time = SystemTime::UNIX_EPOCH + Duration::new(EPOCH_SECONDS + seed * 101, nanoseconds);
    File::open(path)
        .expect("opened")
        .set_times(FileTimes::new().set_modified(time).set_accessed(time))
        .expect("set");
}
