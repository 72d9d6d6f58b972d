//! `forebay bench` is a command of `forebay`, though another program carries it out.

use std::process::Command;

use super::room::Room;
use crate::tier::{forebay, forebay_bench};

#[test]
fn its_help_is_found_like_any_other_commands() {
    let of = |command: &mut Command| {
        let output = command.output().expect("it runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let help = of(forebay_bench().arg("--help"));
    assert!(help.contains("Usage: forebay bench <COMMAND>") && help.contains("render"), "{help}");
    assert_eq!(of(forebay().args(["help", "bench"])), help);
    assert_eq!(of(forebay().args(["help", "bench", "relay"])), of(forebay_bench().args(["help", "relay"])));
    assert!(of(forebay().arg("--help")).contains("bench"), "it is listed");
}

#[test]
fn without_its_program_it_says_what_is_missing() {
    let room = Room::new();
    let alone = room.path("forebay");
    std::fs::copy(forebay().get_program(), &alone).expect("copied");
    let output = Command::new(&alone)
        .args(["bench", "render"])
        .env("PATH", room.path("tmp"))
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    assert!(said.contains("forebay-bench") && said.contains("make release"), "{said}");
}
