//! Virtual-hosted addressing: the bucket in the host name (`Host: bucket.domain`), which is the default of clients.
//! Pure.

/// The bucket that this host names, if it is one below `domain`, which is in lower case.
pub fn bucket_of(host: &str, domain: Option<&str>) -> Option<String> {
    let domain = domain?;
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let bucket = name.strip_suffix(domain)?.strip_suffix('.')?;
    (!bucket.is_empty()).then(|| bucket.to_owned())
}

/// The path-style path of a virtual-hosted request. Percent-encoded, as it came.
pub fn with_bucket(bucket: &str, path: &str) -> String {
    let slash = if path.starts_with('/') { "" } else { "/" };
    format!("/{bucket}{slash}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_below_the_domain_names_a_bucket() {
        let of = |host| bucket_of(host, Some("s3.example"));
        assert_eq!(of("data.s3.example").as_deref(), Some("data"));
        assert_eq!(of("Data.S3.Example:9000").as_deref(), Some("data"), "names of hosts have no case");
        assert_eq!(of("my.data.s3.example.").as_deref(), Some("my.data"));
        for other in [
            "s3.example",
            "s3.example:9000",
            ".s3.example",
            "datas3.example",
            "127.0.0.1:9000",
            "[::1]:9",
            "",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
        assert_eq!(bucket_of("data.s3.example", None), None);
    }

    #[test]
    fn the_path_of_a_named_bucket_begins_with_it() {
        assert_eq!(with_bucket("data", "/a%2Fb"), "/data/a%2Fb");
        assert_eq!(with_bucket("data", "/"), "/data/");
        assert_eq!(with_bucket("data", "*"), "/data/*");
    }
}
