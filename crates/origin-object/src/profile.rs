//! The profile files of the field's tools: `~/.aws/credentials` and `~/.aws/config`. Pure: text in, facts out.

use types::{Error, ErrorKind, Result};

/// What a profile says of what we understand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    pub key_id: Option<String>,
    pub secret: Option<String>,
    pub token: Option<String>,
    pub region: Option<String>,
    pub endpoint: Option<String>,
}

/// Ways to get credentials that we do not have: said, where a profile names one and no keys.
const OTHER_WAYS: [&str; 4] = ["role_arn", "credential_process", "sso_session", "sso_start_url"];

impl Profile {
    /// `None`: neither text has it. What stands in `credentials` counts before what stands in `config`.
    pub fn find(name: &str, credentials: &str, config: &str) -> Result<Option<Profile>> {
        let in_config = if name == "default" { vec!["default", "profile default"] } else { vec![] };
        let long = format!("profile {name}");
        let mut found = None;
        let mut other_way = None;
        for (text, sections) in
            [(credentials, vec![name]), (config, [in_config, vec![long.as_str()]].concat())]
        {
            for (key, value) in entries(text, &sections, &mut found) {
                let profile = found.get_or_insert_with(Profile::default);
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
        if let (Some(way), Some(Profile { key_id: None, .. })) = (other_way, &found) {
            let message = format!(
                "profile \"{name}\" has {way}, which this version does not follow; put its keys into the environment \
                 (aws configure export-credentials --format env)"
            );
            return Err(Error::new(ErrorKind::Config, "origin", message));
        }
        Ok(found)
    }
}

/// Keys and values of the sections with one of these names. A section that is there, even empty, is found.
fn entries<'a>(text: &'a str, sections: &[&str], found: &mut Option<Profile>) -> Vec<(&'a str, &'a str)> {
    let (mut inside, mut entries) = (false, Vec::new());
    for line in text.lines() {
        // Indented lines belong to the setting above (`s3 =`), none of which is ours.
        if line.starts_with([' ', '\t', '#', ';']) {
            continue;
        }
        if let Some(section) = line.trim_end().strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let section = section.split_whitespace().collect::<Vec<_>>().join(" ");
            inside = sections.contains(&section.as_str());
            if inside {
                found.get_or_insert_with(Profile::default);
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
        let farm = Profile::find("farm", CREDENTIALS, CONFIG).unwrap().unwrap();
        assert_eq!((farm.key_id.as_deref(), farm.secret.as_deref()), (Some("F"), Some("x=y=")));
        assert_eq!((farm.token.as_deref(), farm.region.as_deref()), (Some("T"), Some("us-east-2")));
        assert_eq!(farm.endpoint.as_deref(), Some("http://10.0.0.1:9000"));
        let default = Profile::find("default", CREDENTIALS, CONFIG).unwrap().unwrap();
        assert_eq!((default.key_id.as_deref(), default.region.as_deref()), (Some("A"), Some("eu-west-1")));
        assert_eq!(Profile::find("empty", CREDENTIALS, CONFIG).unwrap(), Some(Profile::default()));
        assert_eq!(Profile::find("nobody", CREDENTIALS, CONFIG).unwrap(), None);
    }

    #[test]
    fn a_way_that_is_not_followed_is_named() {
        let error = Profile::find("sso", CREDENTIALS, CONFIG).unwrap_err().to_string();
        assert!(error.contains("sso_session") && error.contains("\"sso\""), "{error}");
    }
}
