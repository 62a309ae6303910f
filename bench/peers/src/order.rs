//! What a program is asked to do.

use std::{
    collections::BTreeSet,
    io::{BufRead, Write},
    process::ExitCode,
    time::Duration,
};

use uuid::Uuid;

use crate::{AnyError, Deposit, Report};

/// One delivery.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// Of the message: repeats have it too.
    pub id: Uuid,
    /// Its body.
    pub deposit: Deposit,
}

/// What a program is asked to do.
#[derive(Debug)]
pub struct Order {
    /// A database of its own.
    pub database: String,
    /// Length of the measured window.
    pub time: Duration,
    /// All that there are.
    pub deliveries: Vec<Delivery>,
}

impl Order {
    /// Statements are prepared and pages are cached before the window opens.
    #[must_use]
    pub fn warm_up(&self) -> Duration {
        self.time / 10
    }

    /// Keys of all entities.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        let keys: BTreeSet<&str> = self.deliveries.iter().map(|delivery| delivery.deposit.account.as_str()).collect();
        keys.into_iter().map(str::to_owned).collect()
    }

    /// Says that all is prepared, and waits for the start.
    ///
    /// # Errors
    /// Nobody is there any more.
    pub fn wait_for_start(&self) -> Result<(), AnyError> {
        println!("ready");
        std::io::stdout().flush()?;
        match std::io::stdin().lines().next() {
            Some(line) if line.as_deref().is_ok_and(|line| line == "go") => Ok(()),
            _ => Err("`go` was not said".into()),
        }
    }

    fn read() -> Result<Self, AnyError> {
        let mut args = std::env::args().skip(1);
        let (mut database, mut time) = (None, None);
        while let Some(arg) = args.next() {
            let value = args.next().ok_or_else(|| format!("{arg} needs a value"))?;
            match arg.as_str() {
                "--database" => database = Some(value),
                "--seconds" => time = Some(Duration::try_from_secs_f64(value.parse()?)?),
                _ => return Err(format!("unknown option `{arg}`: there are --database and --seconds").into()),
            }
        }
        let mut deliveries = Vec::new();
        for line in std::io::stdin().lock().lines() {
            let line = line?;
            if line.is_empty() {
                break;
            }
            let (id, body) = line.split_once(' ').ok_or("a delivery is `ID BODY`")?;
            deliveries.push(Delivery { id: Uuid::parse_str(id)?, deposit: serde_json::from_str(body)? });
        }
        let database = database.ok_or("--database URL is missing: the program is started by hapax-bench")?;
        Ok(Self { database, time: time.ok_or("--seconds S is missing")?, deliveries })
    }
}

/// The program of a peer.
pub fn main<D: Future<Output = Result<Report, AnyError>>>(peer: impl FnOnce(Order) -> D) -> ExitCode {
    let run = || -> Result<String, AnyError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let report = runtime.block_on(peer(Order::read()?))?;
        Ok(serde_json::to_string(&report)?)
    };
    match run() {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
