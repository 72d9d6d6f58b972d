//! AWS profiles: `~/.aws/credentials` and `~/.aws/config`. Pure: text in, facts out.

use types::{Error, ErrorKind, Result};

/// The settings of a profile that we understand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AwsProfile {
    pub key_id: Option<String>,
    pub secret: Option<String>,
    pub token: Option<String>,
    pub region: Option<String>,
    pub endpoint: Option<String>,
}

/// Sources of credentials that we do not support: named in the error if a profile has one and no keys.
const OTHER_WAYS: [&str; 4] = ["role_arn", "credential_process", "sso_session", "sso_start_url"];

impl AwsProfile {
    /// `None`: neither text has it. `credentials` takes precedence over `config`.
    pub fn find(name: &str, credentials: &str, config: &str) -> Result<Option<AwsProfile>> {
        let in_config = if name == "default" { vec!["default", "profile default"] } else { vec![] };
        let long = format!("profile {name}");
        let mut found = None;
        let mut other_way = None;
        for (text, sections) in
            [(credentials, vec![name]), (config, [in_config, vec![long.as_str()]].concat())]
        {
            for (key, value) in entries(text, &sections, &mut found) {
                let profile = found.get_or_insert_with(AwsProfile::default);
                let place = match key {
                    "aws_access_key_id" => &mut profile.key_id,
                    "aws_secret_access_key" => &mut profile.secret,
                    "aws_session_token" => &mut profile.token,
                    "region" => &mut profile.region,
                    "endpoint_url" => &mut profile.endpoint,
                    _ => {
                        other_way = other_way.or(OTHER_WAYS.into_iter().find(|other| *other == key));
                        continue;
                    }
                };
                place.get_or_insert_with(|| value.to_owned());
            }
        }
        if let (Some(way), Some(AwsProfile { key_id: None, .. })) = (other_way, &found) {
            let message = format!(
                "profile \"{name}\" has {way}, which this version does not follow; put its keys into the environment \
                 (aws configure export-credentials --format env)"
            );
            return Err(Error::new(ErrorKind::Config, "origin", message));
        }
        Ok(found)
    }
}

/// The keys and values of the sections with these names. An empty section counts as found.
fn entries<'a>(text: &'a str, sections: &[&str], found: &mut Option<AwsProfile>) -> Vec<(&'a str, &'a str)> {
    let (mut inside, mut entries) = (false, Vec::new());
    for line in text.lines() {
        // Indented lines belong to the setting above (`s3 =`); none is ours.
        if line.starts_with([' ', '\t', '#', ';']) {
            continue;
        }
        if let Some(section) = line.trim_end().strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let section = section.split_whitespace().collect::<Vec<_>>().join(" ");
            inside = sections.contains(&section.as_str());
            if inside {
                found.get_or_insert_with(AwsProfile::default);
            }
        } else if let (true, Some((key, value))) = (inside, line.split_once('=')) {
            entries.push((key.trim(), value.trim()));
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREDENTIALS: &str = "[default]\naws_access_key_id = A\naws_secret_access_key=S\n\n[farm]\n# of the farm\n\
                               aws_access_key_id=F\naws_secret_access_key = x=y=\naws_session_token = T\n";
    const CONFIG: &str = "[default]\nregion = eu-west-1\ns3 =\n  max_concurrent_requests = 20\n\
                          [profile farm]\nregion=us-east-2\nendpoint_url = http://10.0.0.1:9000\n\
                          [profile sso]\nsso_session = corp\n[profile empty]\n";

    #[test]
    fn keys_and_places_come_from_both_files() {
        let farm = AwsProfile::find("farm", CREDENTIALS, CONFIG).unwrap().unwrap();
        assert_eq!((farm.key_id.as_deref(), farm.secret.as_deref()), (Some("F"), Some("x=y=")));
        assert_eq!((farm.token.as_deref(), farm.region.as_deref()), (Some("T"), Some("us-east-2")));
        assert_eq!(farm.endpoint.as_deref(), Some("http://10.0.0.1:9000"));
        let default = AwsProfile::find("default", CREDENTIALS, CONFIG).unwrap().unwrap();
        assert_eq!((default.key_id.as_deref(), default.region.as_deref()), (Some("A"), Some("eu-west-1")));
        assert_eq!(AwsProfile::find("empty", CREDENTIALS, CONFIG).unwrap(), Some(AwsProfile::default()));
        assert_eq!(AwsProfile::find("nobody", CREDENTIALS, CONFIG).unwrap(), None);
    }

    #[test]
    fn a_way_that_is_not_followed_is_named() {
        let error = AwsProfile::find("sso", CREDENTIALS, CONFIG).unwrap_err().to_string();
        assert!(error.contains("sso_session") && error.contains("\"sso\""), "{error}");
    }
}
