//! The export rules: which client may use which junction, and as which user. Pure; evaluated on every call, for the
//! junction in its handle.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rpc_nfs3::rpc::{AuthSys, Credentials};
use siphasher::sip::SipHasher13;
use types::{Caller, Durability, JunctionId};

/// The uid and gid of nobody.
pub const NOBODY: u32 = 65534;

/// An address range: `10.0.0.0/8`, `fd00::/8`, `192.168.1.7`, `*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    address: IpAddr,
    /// The number of leading bits that must match.
    prefix: u8,
    /// Matches every address of either family.
    any: bool,
}

impl Network {
    pub const ANY: Network =
        Network { address: IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), prefix: 0, any: true };

    fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            _ if self.any => true,
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let shift = 32 - u32::from(self.prefix);
                (u64::from(own.to_bits()) >> shift) == (u64::from(other.to_bits()) >> shift)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing.leading_zeros() >= u32::from(self.prefix)
            }
            _ => false,
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.any {
            true => f.write_str("*"),
            false => write!(f, "{}/{}", self.address, self.prefix),
        }
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        if text == "*" {
            return Ok(Network::ANY);
        }
        let wrong =
            || format!("\"{text}\" is no address range; write 10.0.0.0/8, 192.168.1.7, fd00::/8 or *");
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(longest), str::parse).map_err(|_| wrong())?;
        if prefix > longest {
            return Err(wrong());
        }
        Ok(Network { address, prefix, any: false })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Squash {
    /// Trust every uid.
    None,
    /// Map root to nobody.
    Root,
    /// Map everybody to nobody.
    All,
}

#[derive(Clone, Debug, Hash)]
pub struct ExportRule {
    /// The junction that it applies to; `None`: all.
    pub junction: Option<JunctionId>,
    pub clients: Vec<Network>,
    pub squash: Squash,
    pub anonymous_uid: u32,
    pub anonymous_gid: u32,
    /// Refuse calls from ports that any user of the client may use.
    pub privileged_port: bool,
    /// Refuse changes, whatever the junction's policy is.
    pub read_only: bool,
    /// When a change is on stable storage, where the junction's policy leaves that open: `Always`, as the protocol promises,
    /// unless an operator gives that up.
    pub durability: Durability,
}

impl Default for ExportRule {
    fn default() -> ExportRule {
        ExportRule {
            junction: None,
            clients: vec![Network::ANY],
            squash: Squash::Root,
            anonymous_uid: NOBODY,
            anonymous_gid: NOBODY,
            privileged_port: false,
            read_only: false,
            durability: Durability::Always,
        }
    }
}

/// The export rules. The most specific one applies: one for the junction before one for all, then the one with the
/// longest prefix. Without a rule, a client is refused.
/// Clones share the rules: a replacement counts for all of them from the next call on.
#[derive(Clone, Debug)]
pub struct ExportRules {
    /// Read by every call, and therefore without a lock.
    rules: Arc<ArcSwap<Vec<ExportRule>>>,
}

impl Default for ExportRules {
    /// Admits everybody, with root squashed.
    fn default() -> ExportRules {
        ExportRules::new(vec![ExportRule::default()])
    }
}

/// Why a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportRefusal {
    /// This address may not use this junction.
    Client,
    /// This export does not accept this kind of credentials.
    Credentials,
}

impl ExportRules {
    pub fn new(rules: Vec<ExportRule>) -> ExportRules {
        ExportRules { rules: Arc::new(ArcSwap::from_pointee(rules)) }
    }

    /// Takes the rules of `other`.
    pub fn replace(&self, other: ExportRules) {
        self.rules.store(other.rules.load_full());
    }

    /// The index of the narrowest rule that admits this client to anything. `None`: no rule does.
    fn connection_rule(&self, client: SocketAddr) -> Option<usize> {
        let address = client.ip().to_canonical();
        let admits = |rule: &ExportRule| !rule.privileged_port || client.port() < 1024;
        let rules = self.rules.load();
        let rules = rules.iter().enumerate().filter(|(_, rule)| admits(rule));
        let prefixes = rules.filter_map(|(at, rule)| {
            let networks = rule.clients.iter().filter(|network| network.contains(address));
            networks.map(|network| network.prefix).max().map(|prefix| (prefix, at))
        });
        prefixes.max_by_key(|(prefix, at)| (*prefix, std::cmp::Reverse(*at))).map(|(_, at)| at)
    }

    /// The slot group of a client: a hash of the rule that admits it to anything, so that it stays the same while
    /// the rule moves in the list. `None`: no rule admits it.
    pub fn group_of(&self, client: SocketAddr) -> Option<u64> {
        let rules = self.rules.load();
        let mut hasher = SipHasher13::new();
        rules.get(self.connection_rule(client)?)?.hash(&mut hasher);
        Some(hasher.finish())
    }

    /// The number of rules.
    pub fn count(&self) -> usize {
        self.rules.load().len()
    }

    pub fn admits(&self, junction: JunctionId, client: SocketAddr) -> bool {
        rule_for(&self.rules.load(), junction, client).is_some()
    }

    pub fn is_read_only(&self, junction: JunctionId, client: SocketAddr) -> bool {
        rule_for(&self.rules.load(), junction, client).is_none_or(|rule| rule.read_only)
    }

    /// The caller that a call acts as.
    pub fn caller(
        &self,
        junction: JunctionId,
        client: SocketAddr,
        credentials: &Credentials,
    ) -> Result<Caller, ExportRefusal> {
        let rules = self.rules.load();
        let rule = rule_for(&rules, junction, client).ok_or(ExportRefusal::Client)?;
        let nobody = user(rule.anonymous_uid, rule.anonymous_gid, Vec::new());
        let caller = match (credentials, rule.squash) {
            (_, Squash::All) => nobody,
            (Credentials::Sys(sys), squash) => squashed(sys, squash, nobody),
            _ => return Err(ExportRefusal::Credentials),
        };
        Ok(Caller { durability: rule.durability, ..caller })
    }
}

/// The rule for a client at a junction. Directories above junctions are open to every client that may use any
/// junction.
fn rule_for(rules: &[ExportRule], junction: JunctionId, client: SocketAddr) -> Option<&ExportRule> {
    let address = client.ip().to_canonical();
    let mut best: Option<((bool, u8), &ExportRule)> = None;
    for rule in rules {
        let applies = match rule.junction {
            None => true,
            Some(only) => only == junction || junction == JunctionId::VIRTUAL,
        };
        if !applies {
            continue;
        }
        for network in rule.clients.iter().filter(|n| n.contains(address)) {
            let rank = (rule.junction.is_some(), network.prefix);
            if best.is_none_or(|(known, _)| rank > known) {
                best = Some((rank, rule));
            }
        }
    }
    best.map(|(_, rule)| rule).filter(|rule| !rule.privileged_port || client.port() < 1024)
}

fn squashed(sys: &AuthSys, squash: Squash, nobody: Caller) -> Caller {
    if squash != Squash::Root {
        return user(sys.uid, sys.gid, sys.groups.clone());
    }
    // Group 0 is squashed wherever it appears, or it would open what belongs to group root.
    let group = |gid: u32| if gid == 0 { nobody.gid } else { gid };
    let groups = sys.groups.iter().map(|g| group(*g)).collect();
    if sys.uid == 0 {
        return nobody;
    }
    user(sys.uid, group(sys.gid), groups)
}

fn user(uid: u32, gid: u32, groups: Vec<u32>) -> Caller {
    Caller { uid, gid, groups, ..Caller::root() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(junction: Option<u32>, clients: &[&str], squash: Squash) -> ExportRule {
        let clients = clients.iter().map(|c| c.parse().expect("valid")).collect();
        ExportRule { junction: junction.map(JunctionId), clients, squash, ..ExportRule::default() }
    }

    fn sys(uid: u32, gid: u32, groups: &[u32]) -> Credentials {
        Credentials::Sys(AuthSys { uid, gid, groups: groups.to_vec(), ..AuthSys::default() })
    }

    fn uid(
        rules: &ExportRules,
        junction: u32,
        client: &str,
        credentials: &Credentials,
    ) -> Result<u32, ExportRefusal> {
        let client = client.parse().expect("valid");
        rules.caller(JunctionId(junction), client, credentials).map(|caller| caller.uid)
    }

    #[test]
    fn the_most_specific_rule_wins_and_no_rule_is_a_refusal() {
        let rules = ExportRules::new(vec![
            rule(None, &["10.0.0.0/8"], Squash::Root),
            rule(None, &["10.1.0.0/16"], Squash::None),
            rule(Some(2), &["10.1.1.0/24", "fd00::/8"], Squash::All),
        ]);
        let root = sys(0, 0, &[]);
        assert_eq!(uid(&rules, 1, "10.2.0.1:700", &root), Ok(NOBODY));
        assert_eq!(uid(&rules, 1, "10.1.0.1:700", &root), Ok(0));
        assert_eq!(uid(&rules, 2, "10.1.1.1:700", &sys(5, 5, &[])), Ok(NOBODY));
        assert_eq!(uid(&rules, 1, "10.1.1.1:700", &sys(5, 5, &[])), Ok(5));
        assert_eq!(uid(&rules, 2, "[fd00::1]:700", &sys(5, 5, &[])), Ok(NOBODY));
        assert_eq!(uid(&rules, 1, "[fd00::1]:700", &sys(5, 5, &[])), Err(ExportRefusal::Client));
        assert_eq!(uid(&rules, 1, "11.0.0.1:700", &root), Err(ExportRefusal::Client));
        assert_eq!(uid(&rules, 1, "[::ffff:10.1.0.1]:700", &root), Ok(0), "mapped addresses are IPv4");
    }

    #[test]
    fn rules_that_replace_others_count_from_the_next_call_on() {
        let rules = ExportRules::new(vec![rule(None, &["10.0.0.0/8"], Squash::Root)]);
        let (served, root) = (rules.clone(), sys(0, 0, &[]));
        assert_eq!(uid(&served, 1, "10.1.1.1:700", &root), Ok(NOBODY));
        rules.replace(ExportRules::new(vec![rule(None, &["11.0.0.0/8"], Squash::None)]));
        assert_eq!(uid(&served, 1, "10.1.1.1:700", &root), Err(ExportRefusal::Client));
        assert_eq!(uid(&served, 1, "11.1.1.1:700", &root), Ok(0));
    }

    #[test]
    fn squash_and_credentials_in_every_combination() {
        let any = |squash| ExportRules::new(vec![rule(None, &["*"], squash)]);
        let (root, user) = (sys(0, 0, &[0]), sys(7, 0, &[0, 9]));
        let none = Credentials::None;
        let client = "1.2.3.4:900".parse().expect("valid");
        assert_eq!(uid(&any(Squash::None), 1, "1.2.3.4:900", &root), Ok(0));
        assert_eq!(uid(&any(Squash::Root), 1, "1.2.3.4:900", &root), Ok(NOBODY));
        let caller = any(Squash::Root).caller(JunctionId(1), client, &user).expect("admitted");
        assert_eq!((caller.uid, caller.gid, caller.groups), (7, NOBODY, vec![NOBODY, 9]));
        for squash in [Squash::None, Squash::Root] {
            assert_eq!(uid(&any(squash), 1, "1.2.3.4:900", &none), Err(ExportRefusal::Credentials));
            assert_eq!(
                uid(&any(squash), 1, "1.2.3.4:900", &Credentials::Other(6)),
                Err(ExportRefusal::Credentials)
            );
        }
        assert_eq!(uid(&any(Squash::All), 1, "1.2.3.4:900", &none), Ok(NOBODY));
    }

    #[test]
    fn a_change_is_stable_when_it_is_answered_unless_the_rule_gives_that_up() {
        let relaxed =
            ExportRule { durability: Durability::Fsync, ..rule(None, &["10.1.0.0/16"], Squash::Root) };
        let all = ExportRule {
            squash: Squash::All,
            clients: vec!["10.2.0.0/16".parse().expect("valid")],
            ..relaxed.clone()
        };
        let rules = ExportRules::new(vec![rule(None, &["10.0.0.0/8"], Squash::Root), relaxed, all]);
        for (client, wanted) in [
            ("10.0.0.1:700", Durability::Always),
            ("10.1.0.1:700", Durability::Fsync),
            ("10.2.0.1:700", Durability::Fsync),
        ] {
            for credentials in [sys(0, 0, &[]), sys(7, 7, &[])] {
                let caller = rules.caller(JunctionId(1), client.parse().expect("valid"), &credentials);
                assert_eq!(caller.expect("admitted").durability, wanted, "{client}");
            }
        }
    }

    #[test]
    fn a_port_that_any_user_may_use_is_refused_where_asked() {
        let rules = ExportRules::new(vec![ExportRule { privileged_port: true, ..ExportRule::default() }]);
        assert!(rules.admits(JunctionId(1), "1.2.3.4:1023".parse().expect("valid")));
        assert!(!rules.admits(JunctionId(1), "1.2.3.4:1024".parse().expect("valid")));
    }

    #[test]
    fn a_client_stands_under_the_narrowest_rule_or_under_none() {
        let private = ExportRule { privileged_port: true, ..rule(Some(2), &["10.9.0.0/16"], Squash::All) };
        let rules = ExportRules::new(vec![
            rule(None, &["10.0.0.0/8"], Squash::Root),
            rule(Some(1), &["10.1.0.0/16", "fd00::/8"], Squash::All),
            private,
        ]);
        let of = |client: &str| rules.connection_rule(client.parse().expect("valid"));
        assert_eq!(of("10.2.0.1:700"), Some(0));
        assert_eq!((of("10.1.0.1:7000"), of("[fd00::1]:7000")), (Some(1), Some(1)));
        assert_eq!((of("10.9.0.1:700"), of("10.9.0.1:7000")), (Some(2), Some(0)));
        assert_eq!(of("11.0.0.1:700"), None);
    }

    #[test]
    fn a_network_may_be_read_only_beside_one_that_is_not() {
        let read_only = |rule| ExportRule { read_only: true, ..rule };
        let rules = ExportRules::new(vec![
            rule(None, &["10.0.0.0/8"], Squash::Root),
            read_only(rule(None, &["10.1.0.0/16"], Squash::Root)),
            read_only(rule(Some(2), &["10.0.0.0/8"], Squash::Root)),
        ]);
        let refused =
            |junction, client: &str| rules.is_read_only(JunctionId(junction), client.parse().expect("valid"));
        assert!(!refused(1, "10.2.0.1:700"));
        assert!(refused(1, "10.1.0.1:700"));
        assert!(refused(2, "10.2.0.1:700"), "the rule for the junction wins");
        assert!(refused(1, "11.0.0.1:700"), "nobody's rule is no permission");
    }

    #[test]
    fn a_wrong_range_says_what_would_be_right() {
        for wrong in ["10.0.0.0/33", "nas", "10.0.0/8", "", "fd00::/129", "1.2.3.4/x"] {
            let error = wrong.parse::<Network>().expect_err(wrong);
            assert!(error.contains("10.0.0.0/8"), "{error}");
        }
    }
}
