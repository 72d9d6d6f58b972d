//! Azure's connection strings: `AccountName=…;AccountKey=…;EndpointSuffix=…`, as the portal gives them. Pure.

/// The known names. Others are spelling mistakes, or no connection string at all.
const NAMES: [&str; 14] = [
    "AccountKey",
    "AccountName",
    "BlobEndpoint",
    "BlobSecondaryEndpoint",
    "DefaultEndpointsProtocol",
    "DfsEndpoint",
    "EndpointSuffix",
    "FileEndpoint",
    "FileSecondaryEndpoint",
    "QueueEndpoint",
    "QueueSecondaryEndpoint",
    "SharedAccessSignature",
    "TableEndpoint",
    "TableSecondaryEndpoint",
];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionString(Vec<(&'static str, String)>);

impl ConnectionString {
    /// Errors do not quote the text: any part may be the key.
    pub fn parse(text: &str) -> Result<ConnectionString, String> {
        let mut parts = Vec::new();
        for (number, part) in (1..).zip(text.split(';').map(str::trim)) {
            if part.is_empty() {
                continue;
            }
            let Some((name, value)) = part.split_once('=') else {
                return Err(format!("its part {number} is no Name=value"));
            };
            let name = NAMES.into_iter().find(|known| known.eq_ignore_ascii_case(name.trim()));
            let name = name.ok_or_else(|| {
                format!(
                    "its part {number} has a name that no connection string has; they are {}",
                    NAMES.join(", ")
                )
            })?;
            if value.is_empty() {
                return Err(format!("its {name} is empty"));
            }
            parts.push((name, value.to_owned()));
        }
        let found = ConnectionString(parts);
        if found.get("AccountKey").is_none() && found.get("SharedAccessSignature").is_none() {
            return Err("it has neither AccountKey nor SharedAccessSignature".into());
        }
        Ok(found)
    }

    pub fn get(&self, name: &str) -> Option<String> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_string_that_cannot_be_read_says_why_and_not_what() {
        let good = "DefaultEndpointsProtocol=https;accountname=farm01;AccountKey=c2VjcmV0==;EndpointSuffix=core.windows.net;";
        let found = ConnectionString::parse(good).unwrap();
        assert_eq!(found.get("AccountName").as_deref(), Some("farm01"));
        assert_eq!(found.get("AccountKey").as_deref(), Some("c2VjcmV0=="));
        for (text, why) in [
            ("", "neither AccountKey"),
            ("c2VjcmV0", "part 1 is no Name=value"),
            ("c2VjcmV0==", "part 1 has a name"),
            ("AccountName=farm01;Acountkey=c2VjcmV0", "part 2 has a name"),
            ("AccountName=farm01;AccountKey=", "AccountKey is empty"),
            ("AccountName=farm01;EndpointSuffix=core.windows.net", "neither AccountKey"),
        ] {
            let told = ConnectionString::parse(text).unwrap_err();
            assert!(told.contains(why) && !told.contains("c2VjcmV0"), "{text}: {told}");
        }
    }
}
