//! Wrong sweep files and wrong sweep requests: one clear error, exit code 2, nothing left behind.
//!
//! Snapshots are refreshed with `INSTA_UPDATE=always cargo test --test sweep_errors`.

#![allow(clippy::unwrap_used)]

mod support;

use insta::assert_snapshot;
use support::Sandbox;

fn refused(text: &str, args: &[&str]) -> String {
    let sandbox = Sandbox::new();
    sandbox.write("s.toml", text);
    let out = sandbox.run(&[&["sweep", "s.toml"], args].concat());
    assert!(out.starts_with("exit code: 2\n----- stdout -----\n----- stderr -----\n"), "{out}");
    assert_eq!(sandbox.files(), ["s.toml"], "something was left behind");
    out
}

#[test]
fn unknown_key_of_the_sweep() {
    assert_snapshot!(refused("name = 'x'\nmehtods = ['living']\n", &[]));
}

#[test]
fn key_of_the_configuration_at_the_top() {
    assert_snapshot!(refused("name = 'x'\n[experience]\ntop_k = 3\n", &[]));
}

#[test]
fn unknown_key_in_the_grid() {
    assert_snapshot!(refused("name = 'x'\n[grid]\nexperience.topk = [1]\n", &[]));
}

#[test]
fn value_out_of_range_in_the_grid() {
    assert_snapshot!(refused("name = 'x'\n[grid]\nexperience.alpha = [0.5, 1.5]\n", &[]));
}

#[test]
fn one_value_where_a_list_is_wanted() {
    assert_snapshot!(refused("name = 'x'\n[one_at_a_time]\nexperience.top_k = 3\n", &[]));
}

#[test]
fn method_in_the_grid() {
    assert_snapshot!(refused("name = 'x'\n[grid]\nmethod = ['linear']\n", &[]));
}

#[test]
fn no_dataset() {
    assert_snapshot!(refused("name = 'x'\n", &[]));
}

#[test]
fn no_name() {
    assert_snapshot!(refused("methods = ['living']\n", &[]));
}

#[test]
fn wrong_shard() {
    assert_snapshot!(refused("name = 'x'\n", &["--shard", "5/4"]));
}

#[test]
fn missing_preset_of_a_dataset() {
    assert_snapshot!(refused("name = 'x'\n", &["--dataset", "data=nowhere.toml"]));
}
