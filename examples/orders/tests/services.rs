//! The job on DynamoDB and Cosmos DB, on their emulators, and with the dedup entries apart; and on the services themselves, where those are
//! asked for.
#![allow(clippy::unwrap_used)]

mod program;

use std::{path::PathBuf, process::Output};

use program::{number, orders, program, words};

/// Runs it and expects the books to balance.
fn balanced(arguments: &[&str]) -> String {
    let output = orders(arguments);
    let report = words(&output);
    assert_eq!(output.status.code(), Some(0), "{report}");
    assert!(report.contains("charged exactly once") && !report.contains("still there"), "{report}");
    // Three of the first 20 orders become dead letters, and no run here has fewer.
    let letters = report.lines().find_map(|line| line.strip_prefix("dead letters")).unwrap();
    assert!(letters.split_whitespace().next().unwrap().parse::<u32>().unwrap() >= 3, "{report}");
    report
}

/// A folder that no other test uses, and that is not there yet.
fn folder(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("hapax-orders-{name}-{}", std::process::id()))
}

/// `--store` for the emulator that `cargo xtask test` has started.
#[cfg(any(feature = "dynamodb", feature = "cosmos", feature = "objects"))]
fn store(scheme: &str, variable: &str) -> String {
    let url = std::env::var(variable).unwrap_or_else(|_| panic!("no {scheme} to test with: run `cargo xtask test`"));
    format!("{scheme}://{}", url.trim_start_matches("http://"))
}

mod object {
    use super::*;

    #[cfg(feature = "objects")]
    #[test]
    fn the_books_balance_with_the_dedup_entries_in_s3_while_workers_are_killed() {
        let dedup = store("s3", "HAPAX_TEST_S3");
        balanced(&["--orders", "40", "--workers", "2", "--kill-every", "700ms", "--dedup", &dedup]);
    }

    #[cfg(feature = "objects")]
    #[test]
    fn who_does_not_answer_is_named_with_how_to_start_one() {
        for scheme in ["s3", "azure-blob"] {
            let output = orders(&["--orders", "3", "--dedup", &format!("{scheme}://127.0.0.1:1")]);
            assert_eq!(output.status.code(), Some(2), "{}", words(&output));
            assert!(words(&output).contains(&format!("`cargo xtask emulator {scheme}`")), "{}", words(&output));
        }
    }

    #[test]
    fn the_books_balance_with_the_dedup_entries_in_a_folder_while_workers_are_killed() {
        let folder = folder("dedup");
        let dedup = folder.to_str().unwrap();
        let report = balanced(&["--orders", "100", "--workers", "3", "--kill-every", "500ms", "--dedup", dedup]);
        assert!(number(&report, "  killed") > 0, "{report}");
        let output = orders(&["--orders", "3", "--dedup", dedup]);
        assert_eq!(output.status.code(), Some(2), "{}", words(&output));
        assert!(words(&output).contains("is not empty; name a folder of the run's own"), "{}", words(&output));
        std::fs::remove_dir_all(folder).unwrap();
    }
}

#[cfg(feature = "dynamodb")]
mod dynamodb {
    use super::*;

    #[test]
    fn the_books_balance_while_workers_are_killed_and_stopped() {
        let store = store("dynamodb", "HAPAX_TEST_DYNAMODB");
        let faults = ["--workers", "3", "--kill-every", "500ms", "--stall-every", "1s"];
        let report = balanced(&[&["--orders", "60", "--store", &store], &faults[..]].concat());
        assert!(number(&report, "  killed") > 0 && number(&report, "  stopped") > 0, "{report}");
        assert!(report.contains("service, queues in a file"), "{report}");
    }

    #[test]
    fn the_books_balance_with_the_dedup_entries_in_a_folder() {
        let (store, folder) = (store("dynamodb", "HAPAX_TEST_DYNAMODB"), folder("dynamodb-dedup"));
        let dedup = ["--dedup", folder.to_str().unwrap(), "--kill-every", "500ms"];
        balanced(&[&["--orders", "40", "--workers", "2", "--store", &store], &dedup[..]].concat());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[cfg(feature = "objects")]
    #[test]
    fn the_books_balance_with_the_dedup_entries_in_azure_blob_while_workers_are_killed() {
        let [store, dedup] = [store("dynamodb", "HAPAX_TEST_DYNAMODB"), store("azure-blob", "HAPAX_TEST_AZURE_BLOB")];
        let faults = ["--workers", "2", "--kill-every", "700ms"];
        balanced(&[&["--orders", "40", "--store", &store, "--dedup", &dedup], &faults[..]].concat());
    }

    #[test]
    fn who_does_not_answer_is_named_with_how_to_start_one() {
        let output = orders(&["--orders", "3", "--store", "dynamodb://127.0.0.1:1"]);
        assert_eq!(output.status.code(), Some(2), "{}", words(&output));
        assert!(words(&output).contains("nobody answers at 127.0.0.1:1"), "{}", words(&output));
        assert!(words(&output).contains("`cargo xtask emulator dynamodb`"), "{}", words(&output));
    }
}

#[cfg(feature = "cosmos")]
mod cosmos {
    use super::*;

    #[test]
    fn the_books_balance_while_workers_are_killed_and_stopped() {
        let store = store("cosmos", "HAPAX_TEST_COSMOS");
        let faults = ["--workers", "3", "--kill-every", "700ms", "--stall-every", "1s"];
        let report = balanced(&[&["--orders", "40", "--store", &store], &faults[..]].concat());
        assert!(number(&report, "  killed") > 0 && number(&report, "  stopped") > 0, "{report}");
    }

    #[cfg(feature = "objects")]
    #[test]
    fn the_books_balance_with_the_dedup_entries_in_azure_blob() {
        let [store, dedup] = [store("cosmos", "HAPAX_TEST_COSMOS"), store("azure-blob", "HAPAX_TEST_AZURE_BLOB")];
        balanced(&["--orders", "20", "--workers", "2", "--kill-every", "1s", "--store", &store, "--dedup", &dedup]);
    }
}

/// The services themselves, and what stands in for one where a port is named instead of it.
mod itself {
    #[cfg(feature = "real")]
    use std::{
        io::Read,
        net::{TcpListener, TcpStream},
        time::Duration,
    };

    use hapax_servers::real::{AWS, AZURE};
    #[cfg(feature = "real")]
    use hapax_servers::real::{asked, value};

    use super::*;

    #[cfg(feature = "real")]
    const FAULTS: [&str; 6] = ["--workers", "2", "--kill-every", "2s", "--orders", "20"];
    #[cfg(feature = "real")]
    const KEYS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "any"), ("AWS_SECRET_ACCESS_KEY", "any")];

    /// Runs it with these variables, and with none of those of whoever runs the tests that say where services are and who asks.
    fn orders_with(variables: &[(&str, &str)], arguments: &[&str]) -> Output {
        let mut program = program();
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("AWS_") || name.starts_with("HAPAX_A")) {
                program.env_remove(name);
            }
        }
        program.env("AWS_EC2_METADATA_DISABLED", "true").env("AWS_CONFIG_FILE", "/dev/null");
        program.env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null").envs(variables.iter().copied());
        program.args(arguments).output().unwrap()
    }

    fn refusal(variables: &[(&str, &str)], arguments: &[&str]) -> String {
        let output = orders_with(variables, &[&["--orders", "3"], arguments].concat());
        let said = words(&output);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{arguments:?}: {said}");
        said
    }

    /// Places of the four services, by what asks for them.
    const PLACES: [(&str, &str, &str); 4] = [
        (AWS, "--store", "dynamodb://eu-central-1"),
        (AZURE, "--store", "cosmos://shop"),
        (AWS, "--dedup", "s3://eu-central-1"),
        (AZURE, "--dedup", "azure-blob://shop"),
    ];

    #[test]
    fn services_are_refused_unless_they_are_asked_for_and_built_in() {
        for (variable, option, place) in PLACES {
            let scheme = place.split_once(':').unwrap().0;
            let is_built = match scheme {
                "dynamodb" => cfg!(feature = "dynamodb"),
                "cosmos" => cfg!(feature = "cosmos"),
                _ => cfg!(feature = "objects"),
            };
            if !is_built {
                continue;
            }
            for variables in [&[][..], &[(variable, "0")]] {
                let said = refusal(variables, &[option, place]);
                let remedy = format!("set {variable}=1 if you mean it, or write {scheme}://HOST:PORT of an emulator");
                assert!(said.contains(&remedy) && said.contains("costs money"), "{said}");
            }
            if !cfg!(feature = "real") {
                let said = refusal(&[(variable, "1")], &[option, place]);
                assert!(said.contains("build it with --features real"), "{said}");
            }
        }
    }

    #[cfg(feature = "real")]
    #[test]
    fn what_the_services_take_is_told_before_anything_is_made() {
        for (variable, option, place) in PLACES {
            let missing = match place {
                "cosmos://shop" => "set HAPAX_AZURE_COSMOS_KEY to one of shop",
                "azure-blob://shop" => "set HAPAX_AZURE_BLOB_KEY to one of shop",
                _ => "set AWS_ACCESS_KEY_ID",
            };
            let said = refusal(&[(variable, "1")], &[option, place]);
            assert!(said.contains(missing) && said.contains(&format!("{option} {place}")), "{said}");
        }
        let another = "https://another.documents.azure.com/";
        let variables = [(AZURE, "1"), ("HAPAX_AZURE_COSMOS_KEY", "any"), ("HAPAX_AZURE_COSMOS_ENDPOINT", another)];
        let said = refusal(&variables, &["--store", "cosmos://shop"]);
        assert!(said.contains(another) && said.contains("which is not the address of shop"), "{said}");
        let said = refusal(&[(AZURE, "1"), ("HAPAX_AZURE_BLOB_ACCOUNT", "another")], &["--dedup", "azure-blob://shop"]);
        assert!(said.contains("HAPAX_AZURE_BLOB_ACCOUNT is another"), "{said}");
    }

    /// Names what begins a conversation over TLS with it, and ends each.
    #[cfg(feature = "real")]
    fn greeted(listener: &TcpListener) -> Vec<Vec<u8>> {
        listener.set_nonblocking(true).unwrap();
        let greeting = |mut stream: TcpStream| {
            let mut said = vec![0; 2048];
            stream.set_nonblocking(false).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let length = stream.read(&mut said).unwrap_or_default();
            said.truncate(length);
            said
        };
        std::iter::from_fn(|| listener.accept().ok()).map(|(stream, _)| greeting(stream)).collect()
    }

    /// Its certificate would have to be one of an authority, so it is not listened to any further.
    #[cfg(feature = "real")]
    #[test]
    fn services_are_spoken_to_over_tls_by_the_name_of_their_host() {
        for (asks, option, place, variables) in [
            (AWS, "--store", "dynamodb://eu-central-1", ["AWS_ENDPOINT_URL_DYNAMODB", "AWS_SESSION_TOKEN"]),
            (AWS, "--dedup", "s3://eu-central-1", ["AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN"]),
            (AZURE, "--store", "cosmos://localhost", ["HAPAX_AZURE_COSMOS_ENDPOINT", "HAPAX_AZURE_COSMOS_KEY"]),
            (AZURE, "--dedup", "azure-blob://localhost", ["HAPAX_AZURE_BLOB_ENDPOINT", "HAPAX_AZURE_BLOB_KEY"]),
        ] {
            let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
            let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
            let run = std::thread::spawn(move || {
                let variables = [(asks, "1"), (variables[0], &*url), (variables[1], "YW55")];
                orders_with(&[&KEYS[..], &variables].concat(), &["--orders", "3", option, place])
            });
            let mut greetings = Vec::new();
            while !run.is_finished() {
                greetings.extend(greeted(&listener));
                std::thread::sleep(Duration::from_millis(5)); // Another process: it can only be looked at.
            }
            let output = run.join().unwrap();
            assert_eq!(output.status.code(), Some(2), "{place}: {}", words(&output));
            assert!(!greetings.is_empty(), "{place}: nobody came: {}", words(&output));
            for greeting in greetings {
                // A handshake, and the name in it.
                assert_eq!(greeting.first(), Some(&0x16), "{place}: no TLS: {greeting:?}");
                assert!(greeting.windows(9).any(|name| name == b"localhost"), "{place}: no name: {greeting:?}");
            }
        }
    }

    #[cfg(feature = "real")]
    fn balances(variables: &[(&str, &str)], arguments: &[&str]) {
        let output = orders_with(variables, &[arguments, &FAULTS].concat());
        let report = words(&output);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {report}");
        assert!(report.contains("charged exactly once") && !report.contains("still there"), "{report}");
    }

    #[cfg(feature = "real")]
    fn emulator(variable: &str) -> String {
        value(variable).unwrap_or_else(|| panic!("no {variable} to test with: run `cargo xtask test`"))
    }

    /// All but TLS: the way to a service leads to its emulator.
    #[cfg(feature = "real")]
    #[test]
    fn the_way_to_dynamodb_and_s3_themselves_is_that_of_all_workers() {
        let [dynamodb, s3] = ["HAPAX_TEST_DYNAMODB", "HAPAX_TEST_S3"].map(emulator);
        let variables = [(AWS, "1"), ("AWS_ENDPOINT_URL_DYNAMODB", &*dynamodb), ("AWS_ENDPOINT_URL_S3", &*s3)];
        let place = ["--store", "dynamodb://us-east-1", "--dedup", "s3://us-east-1"];
        balances(&[&KEYS[..], &variables].concat(), &place);
    }

    #[cfg(feature = "real")]
    #[test]
    fn the_way_to_cosmos_and_azure_blob_themselves_is_that_of_all_workers() {
        const AZURITE_KEY: &str =
            "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
        let [cosmos, blobs] = ["HAPAX_TEST_COSMOS", "HAPAX_TEST_AZURE_BLOB"].map(emulator);
        let blobs = format!("{}/devstoreaccount1", blobs.trim_end_matches('/'));
        let cosmos = [("HAPAX_AZURE_COSMOS_ENDPOINT", &*cosmos), ("HAPAX_AZURE_COSMOS_KEY", "YW55")];
        let blobs = [("HAPAX_AZURE_BLOB_ENDPOINT", &*blobs), ("HAPAX_AZURE_BLOB_KEY", AZURITE_KEY)];
        let place = ["--store", "cosmos://shop", "--dedup", "azure-blob://devstoreaccount1"];
        balances(&[&[(AZURE, "1")], &cosmos[..], &blobs[..]].concat(), &place);
    }

    /// Whether somebody pays for the service; else says what has not been tested, and how it would be.
    #[cfg(feature = "real")]
    fn pays(variable: &str, service: &str, takes: &str) -> bool {
        if !asked(variable) {
            eprintln!(
                "SKIPPED: orders on {service} themselves is untested: `{variable}=1 cargo nextest run -p hapax-example-orders \
                 --features real -E 'test(on_the_services_themselves)'`, with {takes}"
            );
        }
        asked(variable)
    }

    #[cfg(feature = "real")]
    #[test]
    fn the_books_balance_on_the_services_themselves_of_aws() {
        if pays(AWS, "DynamoDB and S3", "AWS_REGION, and credentials as AWS's own tools find them") {
            let region = value("AWS_REGION").expect("AWS_REGION says where");
            let [store, dedup] = ["dynamodb", "s3"].map(|scheme| format!("{scheme}://{region}"));
            balanced(&[&["--store", &store][..], &FAULTS].concat());
            balanced(&[&["--store", &store, "--dedup", &dedup][..], &FAULTS].concat());
        }
    }

    #[cfg(feature = "real")]
    #[test]
    fn the_books_balance_on_the_services_themselves_of_azure() {
        let takes = "HAPAX_AZURE_COSMOS_ENDPOINT and _KEY, HAPAX_AZURE_BLOB_ACCOUNT and _KEY";
        if pays(AZURE, "Cosmos DB and Azure Blob", takes) {
            let endpoint = value("HAPAX_AZURE_COSMOS_ENDPOINT").expect("HAPAX_AZURE_COSMOS_ENDPOINT says where");
            let account = endpoint.trim_start_matches("https://").split('.').next().unwrap().to_owned();
            let blobs = value("HAPAX_AZURE_BLOB_ACCOUNT").expect("HAPAX_AZURE_BLOB_ACCOUNT says where");
            let (store, dedup) = (format!("cosmos://{account}"), format!("azure-blob://{blobs}"));
            balanced(&[&["--store", &store][..], &FAULTS].concat());
            balanced(&[&["--store", &store, "--dedup", &dedup][..], &FAULTS].concat());
        }
    }
}
