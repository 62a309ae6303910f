//! Headers of mutants, and how the tests that they name are run.
#![allow(clippy::unwrap_used)]

use super::*;

const HEADER: &str = "# what: sends early\n# test: postgres_outbox claims::lost\n# test: outbox_faults stalls\n";

#[test]
fn a_header_names_the_mistake_and_the_tests_that_see_it() {
    let diff = "diff --git a/x b/x\n+++ b/core/src/relay/table.rs\n";
    let mutant = parse(&RELAY, "m", &format!("{HEADER}{diff}")).unwrap();
    assert_eq!(mutant.what, "sends early");
    let tests = [("postgres_outbox", "claims::lost"), ("outbox_faults", "stalls")];
    assert_eq!(mutant.tests, tests.map(|(program, words)| (program.to_owned(), words.to_owned())));
    assert!(parse(&RELAY, "m", diff).unwrap_err().contains("# what"));
    for elsewhere in [diff.replace("relay", "manager"), diff.replace("core/src/relay", "stores/src/cosmos")] {
        let path = elsewhere.lines().last().unwrap().trim_start_matches("+++ b/");
        let why = parse(&RELAY, "m", &format!("{HEADER}{elsewhere}")).unwrap_err();
        assert!(why.contains(path), "{why}");
    }
    assert!(parse(&STORES, "m", &format!("{HEADER}{}", diff.replace("core/src/relay", "stores/src/cosmos"))).is_ok());
}

#[test]
fn a_test_program_is_run_with_what_its_part_is_built_with() {
    assert_eq!(RELAY.args("rules"), ["test", "--quiet", "--locked", "--package", "hapax-tests", "--test", "rules"]);
    let args = STORES.args("dynamodb_store").join(" ");
    assert!(args.ends_with("--test dynamodb_store --no-default-features --features=dynamodb,cosmos,object"), "{args}");
    assert!(ENDPOINT.args(INTERLEAVED).contains(&"--package=hapax-core"));
    assert_eq!(OTEL.args("spans")[3..], ["--package", "hapax-otel", "--test", "spans"]);
    assert_eq!(OPERATOR.args("operator")[3..], ["--package", "hapax-cli", "--test", "operator"]);
    assert_eq!(OPERATOR.args(WITHIN_CLI)[3..], ["--package", "hapax-cli", "--bin", "hapax"]);
    assert!(OPERATOR.args("page").join(" ").ends_with("--package hapax-page --test page --features=serve"));
    assert_eq!(OPERATOR.args("endpoint")[3..], ["--package", "hapax-tests", "--test", "endpoint"]);
    assert!(STORES.args(WITHIN_STORES).join(" ").ends_with("--lib --features=dynamodb,cosmos,object"));
    assert!(ENDPOINT.args(WITHIN_TRANSPORTS).join(" ").ends_with("--lib --features=nats,rabbitmq,redis"));
    assert!(STORES.args(OF_EMULATORS).join(" ").ends_with("servers/emulators/Cargo.toml --test cosmos_regions"));
}

#[test]
fn only_what_the_tests_need_is_provided() {
    let mutants = chosen(&STORES, &["dynamodb-index-trusted".into()]).unwrap();
    assert!(STORES.needs("dynamodb", &mutants) && !STORES.needs("cosmos", &mutants));
    assert!(RELAY.needs("postgres", &[]));
    assert!(chosen(&STORES, &["no-such".into()]).unwrap_err().contains("tests/mutants/stores/*.patch"));
}

#[test]
fn every_patch_of_the_tree_has_a_whole_header_and_applies() {
    for part in [RELAY, STORES, ENDPOINT, OTEL, OPERATOR, SOAK] {
        let mutants = all(&part).unwrap();
        assert!(!mutants.is_empty(), "{}", part.folder);
        for mutant in mutants {
            let patch = part.path().join(format!("{}.patch", mutant.name));
            process::output(process::git(["apply", "--check"]).arg(patch)).unwrap();
        }
    }
}
