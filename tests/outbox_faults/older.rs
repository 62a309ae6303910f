//! Programs that were built from an older commit of this repository, on the same tables as today's, and replaced by them one after
//! another.
//!
//! The older program is the one that these tests started then, unchanged. It takes minutes to build, so that it is for thorough runs.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use rustix::process::{Signal, kill_process};

use super::{
    audit::Seen,
    crew::{Worker, until},
    is_thorough,
    market::Market,
    shops::{InFile, OnMySql, OnPostgres},
    sites::Site,
    upgrade::goes_on,
};

/// The first whose outbox is on all of the databases. The tables of an outbox have not changed since; what is asked of them has.
const COMMIT: &str = "38d95aa37b0bbcfb5285d84735feb9a20ca45f1a";

macro_rules! older {
    ($($name:ident: $shop:ty, $mode:literal;)*) => {$(
        #[tokio::test]
        async fn $name() {
            are_replaced::<$shop>($mode).await;
        }
    )*};
}

older! {
    programs_of_an_older_commit_on_postgres_are_replaced_one_by_one: OnPostgres, "unordered";
    programs_of_an_older_commit_on_postgres_that_keep_order_are_replaced_one_by_one: OnPostgres, "ordered";
    programs_of_an_older_commit_on_mysql_are_replaced_one_by_one: OnMySql, "unordered";
    programs_of_an_older_commit_on_mysql_that_keep_order_are_replaced_one_by_one: OnMySql, "ordered";
    programs_of_an_older_commit_in_sqlite_are_replaced_one_by_one: InFile, "unordered";
    programs_of_an_older_commit_in_sqlite_that_keep_order_are_replaced_one_by_one: InFile, "ordered";
}

async fn are_replaced<S: Site>(mode: &str) {
    let older = match Older::built() {
        Ok(older) => older,
        Err(why) => return eprintln!("SKIPPED: {why}"),
    };
    let (relays, mut begun) = (format!("{mode}-relay"), None);
    // The tables are made by the old one.
    let mut market = Market::<S>::open_behind(mode == "ordered", async |folder| {
        begun = Some(older.selling(folder, &relays).started().await);
    })
    .await;
    let (folder, mut seen) = (market.scratch.folder().to_owned(), Seen::default());
    let relay = begun.unwrap();

    // What today's program has stored, here, is sent by the old one, which is alone.
    market.sell(100).await;
    until("the old one has sent all", async || market.shop.waiting().await == 0).await;

    // Both sell and relay; those that are stopped leave what is theirs to the others, as does one that is killed.
    let [first, second] = [older.selling(&folder, mode).started().await, older.selling(&folder, mode).started().await];
    goes_on(&mut market, &mut seen).await;
    let dies = Worker::selling(&folder, mode).started().await;
    goes_on(&mut market, &mut seen).await;
    relay.stop();
    goes_on(&mut market, &mut seen).await;
    let todays = Worker::selling(&folder, mode).started().await;
    goes_on(&mut market, &mut seen).await;
    dies.kill();
    goes_on(&mut market, &mut seen).await;
    first.stop();
    goes_on(&mut market, &mut seen).await;

    // What the last of the old ones has stored, and has not sent, is sent by today's.
    todays.stop();
    let left = killed_at_work(&mut market, second).await;
    let todays = Worker::selling(&folder, &relays).started().await;
    until("today's has sent what was left", async || market.shop.waiting().await == 0).await;
    println!("{mode}: {} orders were told of while both were there; {left} were left to today's", seen.orders.len());
    let sells = Worker::selling(&folder, mode).started().await;
    goes_on(&mut market, &mut seen).await;
    sells.stop();
    seen.receive_all(&mut market.told, &mut market.shop).await;
    seen.check(market.shop.sold().await, mode);
    assert_eq!(market.shop.number("SELECT count(*) FROM hapax.outbox WHERE status <> 1").await, 0);
    todays.stop();
}

/// Kills who sells, alone, when something is stored and not sent: so many.
async fn killed_at_work<S: Site>(market: &mut Market<S>, worker: Worker) -> i64 {
    for _ in 0..500 {
        kill_process(worker.id(), Signal::STOP).unwrap();
        // What it had under way to the server is done, or is not.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let left = market.shop.waiting().await;
        if left > 0 {
            worker.kill();
            return left;
        }
        kill_process(worker.id(), Signal::CONT).unwrap();
        tokio::time::sleep(Duration::from_millis(7)).await;
    }
    panic!("in vain: it is stopped at work: {}", worker.log());
}

/// The program that `outbox_kills.rs` starts, as it was.
struct Older(PathBuf);

impl Older {
    fn selling(&self, folder: &Path, mode: &str) -> Worker {
        Worker::run_task(folder, ["sell", mode], &mut Command::new(&self.0))
    }

    /// Built below the target folder, once for all. An error: there is nothing to build it from, or no time.
    fn built() -> Result<Self, String> {
        if !is_thorough() {
            return Err("an older program takes minutes to build: `cargo xtask test --all`".into());
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let known = git(root).args(["cat-file", "-e", &format!("{COMMIT}^{{commit}}")]).output();
        if !known.is_ok_and(|known| known.status.success()) {
            return Err(format!(
                "git knows no commit {COMMIT} here to build an older program of: `git fetch --unshallow`"
            ));
        }
        // `target/PROFILE/PROGRAM`.
        let target = Path::new(env!("CARGO_BIN_EXE_hapax-test-worker")).ancestors().nth(2).unwrap();
        let place = target.join("older");
        fs::create_dir_all(&place).unwrap();
        // Other tests want it too.
        let one_at_a_time = File::create(place.join("lock")).unwrap();
        one_at_a_time.lock().unwrap();
        let (tree, made) = (place.join("tree"), place.join("target"));
        if !tree.join(".git").exists() {
            run(git(root).args(["worktree", "add", "--force", "--detach"]).arg(&tree).arg(COMMIT));
        }
        run(git(&tree).args(["checkout", "--quiet", "--force", "--detach", COMMIT]));
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--locked", "--package", "hapax-tests", "--bin", "hapax-test-worker"]);
        run(cargo.current_dir(&tree).env("CARGO_TARGET_DIR", &made).env("CARGO_INCREMENTAL", "0"));
        Ok(Self(made.join("debug/hapax-test-worker")))
    }
}

/// git in a folder, without anybody's hooks.
fn git(folder: &Path) -> Command {
    let mut git = Command::new("git");
    git.arg("-C").arg(folder).args(["-c", "core.hooksPath=/dev/null"]);
    git
}

fn run(command: &mut Command) {
    let ended = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(ended.status.success(), "{command:?}: {}", String::from_utf8_lossy(&ended.stderr));
}
