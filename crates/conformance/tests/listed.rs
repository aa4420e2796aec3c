//! Every case is listed in `conformance!`. One that is not would never run, on any store.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The names after each `pub async fn` in a file of cases.
fn written(source: &str) -> BTreeSet<String> {
    let names = source.lines().filter_map(|line| line.strip_prefix("pub async fn "));
    names.map(|rest| rest.split('(').next().unwrap_or_default().to_owned()).collect()
}

/// The names that the macro lists for each file of cases: what stands in `for_each_case! { $fixture; file: name name }`.
fn listed(source: &str) -> BTreeMap<String, BTreeSet<String>> {
    let body = source.split("macro_rules! conformance {").nth(1).expect("the macro is in this file");
    let body = body.split("\n}").next().unwrap_or_default();
    let mut listed: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for list in body.split("$fixture;").skip(1) {
        let list = list.split('}').next().unwrap_or_default();
        let (file, names) = list.split_once(':').expect("a list begins with its file");
        let names = names.split_whitespace().map(str::to_owned);
        listed.entry(file.trim().to_owned()).or_default().extend(names);
    }
    listed
}

#[test]
fn every_case_is_listed() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let listed = listed(&fs::read_to_string(src.join("lib.rs")).unwrap());
    let mut found = 0;
    let mut missing = Vec::new();
    for file in fs::read_dir(src.join("cases")).unwrap() {
        let path = file.unwrap().path();
        let file = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let of_file = listed.get(&file).cloned().unwrap_or_default();
        let written = written(&fs::read_to_string(&path).unwrap());
        found += written.len();
        missing.extend(written.difference(&of_file).map(|name| format!("{file}::{name}")));
    }
    assert!(found > 0, "no case was found in {}", src.display());
    missing.sort_unstable();
    assert!(missing.is_empty(), "not listed in `conformance!`:\n{}", missing.join("\n"));
}

#[test]
fn lists_and_cases_are_found_where_they_are() {
    let lists = "x macro_rules! conformance {\n a! { $fixture; one:\n first\n second\n }\n b! { $fixture; two: third }\n}\n\
                 c! { $fixture; three: fourth }";
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let expected = [("one".to_owned(), names(&["first", "second"])), ("two".to_owned(), names(&["third"]))];
    assert_eq!(listed(lists), BTreeMap::from(expected));
    assert_eq!(written("pub async fn a(world: World) {\n}\nasync fn helper() {}\npub fn b() {}\n"), names(&["a"]));
}
