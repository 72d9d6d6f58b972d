//! What a store knows of an object besides its bytes and our attributes: others gave it, and it stays.

use origin::{Change, Origin};
use testkit::aws;
use testkit::minio::{Minio, with_minio};
use testkit::stores::RealStore;
use types::SetAttr;

use crate::store::{Bucket, find};

const GIVEN: [&str; 14] = [
    "--content-type",
    "text/html",
    "--cache-control",
    "max-age=60",
    "--content-disposition",
    "attachment",
    "--content-encoding",
    "br",
    "--content-language",
    "sl",
    "--storage-class",
    "REDUCED_REDUNDANCY",
    "--metadata",
    "colour=blue",
];

fn told(minio: &Minio) -> String {
    let query = "[ContentType,CacheControl,ContentDisposition,ContentEncoding,ContentLanguage,StorageClass,\
                 Metadata.colour,Metadata.mode]";
    let ask =
        ["s3api", "head-object", "--bucket", "bucket", "--key", "page", "--output", "text", "--query", query];
    aws::aws(&minio.endpoint(), &ask)
}

/// A copy onto itself took it all away, and browsers were offered to save a page.
#[tokio::test(flavor = "multi_thread")]
async fn what_others_told_the_store_of_an_object_stays_when_its_mode_is_set() {
    let name = "what_others_told_the_store_of_an_object_stays_when_its_mode_is_set";
    if !aws::is_installed(name) {
        return;
    }
    with_minio(name, |minio| async move {
        minio.make_bucket("bucket");
        let put = ["s3api", "put-object", "--bucket", "bucket", "--key", "page"];
        aws::aws(&minio.endpoint(), &[&put[..], &GIVEN[..]].concat());
        let words = "text/html max-age=60 attachment br sl REDUCED_REDUNDANCY blue";
        assert_eq!(told(&minio).split_whitespace().collect::<Vec<_>>().join(" "), format!("{words} None"));
        let bucket = Bucket { store: RealStore::S3(minio), name: "bucket".into() };
        let origin = bucket.origin("&attributes=stored").await;
        let object = find(&origin, "page").await.expect("there").reference;
        let set = SetAttr { mode: Some(0o640), ..SetAttr::default() };
        origin.change(&Change::Set { object, set, guard: None }).await.expect("set");
        let RealStore::S3(minio) = &bucket.store else { unreachable!() };
        let after = told(minio).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(after.starts_with(words) && !after.ends_with("None"), "{after}");
    })
    .await;
}
