//! `forebay serve` and `forebay mount`: one tier in this process, until a signal ends it.

use front_nfs::Registration;
use sd_notify::NotifyState;
use serde_json::json;
use tier::admin::{Admin, status_of};
use tier::reload::{Again, Live};
use tier::running::{RunningTier, tell_exports, tell_junction, tell_what_was_left};
use tier::settings::Settings;
use tier::wire_up::Tier;
use tier::{boot_clock, wire_up};
use tracing::{info, warn};
use types::{Error, Result};

use crate::client;
use crate::signals::{SignalRequest, Signals};

/// Serve until SIGTERM or SIGINT. `announce`: print where, as JSON, once it serves. `attended`: also end when standard
/// input does. `again`: what SIGHUP reads.
pub async fn run(settings: Settings, announce: bool, attended: bool, again: Again) -> Result<()> {
    program::raise_descriptor_limit();
    let mut signals = Signals::take()?;
    if let Some(dir) = &settings.mount {
        front_fuse::check_mount_point(dir)?; // before anybody is asked for anything
    }
    let Some(tier) = build(&settings, &mut signals).await? else { return Ok(()) };
    let nfs_address = tier.nfs_address()?;
    let s3 = tier.s3_address()?.map(|address| address.to_string());
    let admin_address = tier.doors.tcp.local_addr();
    let admin_address =
        admin_address.map_err(|e| Error::io("ask for the address of", "the operator's interface", e))?;
    let registration = match nfs_address {
        Some(address) if settings.rpcbind => register(address.port()).await,
        _ => None,
    };
    settings.junctions.iter().for_each(|junction| tell_junction(junction, &settings.journal.dir));
    if settings.nfs.is_some() {
        tell_exports(&settings.exports);
    }
    tell_what_was_left(&tier.admin.vfs.unflushed());
    let nfs = nfs_address.map(|address| address.to_string());
    let shown = nfs.as_deref().unwrap_or("none");
    let s3_shown = s3.as_deref().unwrap_or("none");
    info!(nfs = shown, s3 = s3_shown, admin = %admin_address, cache = %settings.dir.display(), "serving");
    let (clock, dir) = (tier.namespace.clock().clone(), settings.dir.clone());
    let live = Live {
        admin: tier.admin.clone(),
        exports: tier.exports.clone(),
        keys: settings.s3.as_ref().map(|s3| s3.keys.clone()),
        settings,
    };
    let mut running = RunningTier::start(tier);
    let reload = running.reload_by(live, again);
    let served = match running.mount().await {
        Ok(mount) => {
            if let Some(dir) = &mount {
                info!("mounted at {dir}");
            }
            if announce {
                println!(
                    "{}",
                    json!({ "nfs": nfs, "s3": s3, "admin": admin_address.to_string(), "mount": mount })
                );
            }
            tell_service_manager(&[NotifyState::Ready]);
            let admin = running.admin().clone();
            let asked = |asked| match asked {
                SignalRequest::End => {}
                SignalRequest::Reload => reload(),
                SignalRequest::Tell => tell_status(&admin),
            };
            until_signal(running, signals, attended, asked).await
        }
        Err(e) => running.stop().await.and(Err(e)),
    };
    if let Some(registration) = registration {
        registration.remove().await;
    }
    boot_clock::close(&dir, &clock);
    served
}

/// `None`: it was ended while it waited for its cluster, which takes as long as etcd is away. Any other start comes to its end first.
async fn build(settings: &Settings, signals: &mut Signals) -> Result<Option<Tier>> {
    let ended = signals.ended();
    tokio::select! {
        tier = wire_up::build(settings) => tier.map(Some),
        () = ended, if settings.cluster.is_some() => {
            info!("ended while it was starting");
            Ok(None)
        }
    }
}

/// Serves until SIGTERM or SIGINT, or until the tier's only mount is gone. `asked`: what is done about other signals.
pub async fn until_signal(
    running: RunningTier,
    mut signals: Signals,
    attended: bool,
    mut asked: impl FnMut(SignalRequest),
) -> Result<()> {
    let signalled = async {
        loop {
            match signals.next().await {
                SignalRequest::End => return,
                other => asked(other),
            }
        }
    };
    tokio::select! {
        () = signalled => {}
        () = end_of_input(), if attended => {}
        () = running.unmounted() => {}
    }
    tell_service_manager(&[NotifyState::Stopping]);
    running.stop().await
}

/// Tells systemd, where it started this process with `Type=notify` (NOTIFY_SOCKET), that the tier serves, or that it stops.
fn tell_service_manager(states: &[NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(states) {
        warn!("systemd cannot be told how far the tier is: {e}");
    }
}

async fn register(port: u16) -> Option<Registration> {
    match Registration::create(port).await {
        Ok(registration) => Some(registration),
        Err(e) => {
            warn!("clients must name the port themselves: {e}");
            None
        }
    }
}

/// SIGTERM, SIGINT, and if `attended` the end of standard input.
pub async fn wait_for_the_end(attended: bool) -> Result<()> {
    let mut signals = Signals::take()?;
    let ended = async { while signals.next().await != SignalRequest::End {} };
    tokio::select! {
        () = ended => {}
        () = end_of_input(), if attended => {}
    }
    Ok(())
}

/// What `forebay status` would show, into the log.
fn tell_status(admin: &Admin) {
    for line in client::told(&status_of(admin)) {
        info!("SIGUSR1: {line}");
    }
}

async fn end_of_input() {
    let (ended, told) = tokio::sync::oneshot::channel();
    // A thread of its own: a read that never ends must not keep the runtime from ending.
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = ended.send(());
    });
    let _ = told.await;
}
