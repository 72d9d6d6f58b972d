//! How a rank that was started by others finds rank 0, and is let in.
//!
//! All ways are tried again and again until the time is over: rank 0 may come later, a file may be an earlier run's, and
//! an address may be another machine's. Who was started by rank 0 itself stops as soon as that is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use types::{Error, ErrorKind, Result};

use crate::admission::{Connection, MemberIdentity, NotIn, enter};
use crate::launch::{Meeting, TOKEN, TOKEN_ON_STDIN};
use crate::member::run_ended;
use crate::options::FleetOptions;
use crate::protocol::RankPlace;
use crate::rendezvous::find;
use crate::token::RunToken;

/// Between looks for rank 0.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// The host part of an address that stands for the origin of our ssh connection, by which this machine reaches rank 0's.
pub const SSH_CLIENT: &str = "ssh-client";

/// The token that the environment gives, where no file does.
pub struct Given {
    pub token: RunToken,
    /// True once whoever started us, and holds the other end of our standard input, is gone.
    starter_gone: Arc<AtomicBool>,
}

impl Given {
    pub fn of(options: &FleetOptions) -> Result<Given> {
        match options.environment.get(TOKEN) {
            Some(TOKEN_ON_STDIN) => Given::by_stdin(),
            Some(token) => {
                Ok(Given { token: RunToken::new(token.to_owned())?, starter_gone: Arc::default() })
            }
            None => {
                let what = format!(
                    "{TOKEN} must be one secret in the environment of all ranks: openssl rand -hex 16"
                );
                Err(Error::new(ErrorKind::Config, "--coordinator", what))
            }
        }
    }

    fn by_stdin() -> Result<Given> {
        let mut line = String::new();
        let read = std::io::stdin().read_line(&mut line);
        read.map_err(|e| Error::io("read the run's token from", "stdin", e))?;
        let starter_gone = Arc::new(AtomicBool::new(false));
        let gone = starter_gone.clone();
        let thread = std::thread::Builder::new().name("starter".into()).spawn(move || {
            // Nothing more is written to it, so that this returns at its end.
            let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            gone.store(true, Ordering::Relaxed);
        });
        thread.map_err(|e| Error::io("start a thread for the run", "", e))?;
        Ok(Given { token: RunToken::new(line.trim().to_owned())?, starter_gone })
    }
}

/// Finds rank 0 and is let in as `place.rank` of `size`; with the address that it was found at, for messages.
pub async fn find_rank_0(
    meeting: &Meeting,
    options: &FleetOptions,
    place: &RankPlace,
    size: u32,
) -> Result<(Connection, String)> {
    let deadline = Instant::now() + options.join_deadline;
    let given = match meeting {
        Meeting::At(_) => Some(Given::of(options)?),
        _ => None,
    };
    let mut last = String::new();
    while Instant::now() < deadline {
        let ways = match (meeting, &given) {
            (Meeting::At(addresses), Some(given)) => Some((addresses.clone(), given.token.clone())),
            (Meeting::File { path, .. }, _) => match find(path)? {
                Some(found) => Some((found.addresses, RunToken::new(found.token)?)),
                None => {
                    let path = path.display();
                    last =
                        format!("there is no {path}: do all machines see that directory (--rendezvous DIR)?");
                    None
                }
            },
            _ => None,
        };
        if let Some((addresses, token)) = ways {
            last.clear();
            let member = MemberIdentity { token: &token, place, size, build: &options.build };
            for address in addresses {
                match try_way(&address, options, &member).await {
                    Ok(connection) => return Ok((connection, address)),
                    Err(NotIn::Refused(reason)) => return Err(run_ended(&reason)),
                    Err(NotIn::Try(why)) => last = format!("{last}{address}: {why}; "),
                }
            }
        }
        if given.as_ref().is_some_and(|given| given.starter_gone.load(Ordering::Relaxed)) {
            return Err(run_ended(&format!("rank 0 was gone before rank {} found it", place.rank)));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    let (rank, seconds) = (place.rank, options.join_deadline.as_secs_f64());
    let reason = last.trim_end_matches("; ");
    Err(run_ended(&format!("rank {rank} did not find rank 0 within {seconds:.0} s: {reason}")))
}

async fn try_way(
    address: &str,
    options: &FleetOptions,
    member: &MemberIdentity<'_>,
) -> std::result::Result<Connection, NotIn> {
    let address = match address.strip_prefix(SSH_CLIENT) {
        None => address.to_owned(),
        Some(port) => match options.environment.get("SSH_CONNECTION").and_then(|c| c.split(' ').next()) {
            Some(client) if client.contains(':') => format!("[{client}]{port}"),
            Some(client) => format!("{client}{port}"),
            None => return Err(NotIn::Try("there is no SSH_CONNECTION".into())),
        },
    };
    let addresses = tokio::net::lookup_host(&address).await.map_err(|e| NotIn::Try(e.to_string()))?;
    let mut last = NotIn::Try("the name has no address".into());
    for address in addresses {
        match enter(address, member).await {
            Err(NotIn::Try(why)) => last = NotIn::Try(why),
            other => return other,
        }
    }
    Err(last)
}
