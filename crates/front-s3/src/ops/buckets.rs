//! Making, removing and listing buckets.

use s3s::dto::{Bucket, ListBucketsInput, ListBucketsOutput};
use s3s::{S3Error, S3ErrorCode};
use types::{Name, SetAttr};

use super::RequestContext;
use super::list::{from_token, token_of};
use crate::errors::{S3Result, invalid, s3_error};
use crate::object::last_modified;
use crate::resolve::{self, BucketQuery};

/// The most buckets of one page: S3's own limit.
const LISTED_MAX: usize = 10_000;

impl RequestContext {
    pub async fn list_buckets(&self, input: ListBucketsInput) -> S3Result<ListBucketsOutput> {
        let (vfs, config) = (&self.shared.vfs, &self.shared.config);
        let max = match input.max_buckets {
            None => LISTED_MAX,
            Some(max) => {
                let max = usize::try_from(max).ok().filter(|max| (1..=LISTED_MAX).contains(max));
                max.ok_or_else(|| invalid("max-buckets is between 1 and 10000"))?
            }
        };
        let token = input.continuation_token.as_deref().filter(|token| !token.is_empty());
        let from = token
            .map(|token| from_token(token).ok_or_else(|| invalid("the continuation token is none of ours")));
        let from = from.transpose()?.unwrap_or_default();
        let region = config.region.as_str();
        let is_elsewhere = input.bucket_region.as_ref().is_some_and(|asked| asked != region);
        let is_narrowed = input.max_buckets.is_some()
            || input.prefix.is_some()
            || input.bucket_region.is_some()
            || token.is_some();
        let prefix = input.prefix.clone().unwrap_or_default();
        let wanted = BucketQuery { prefix, from, max };
        let mut found = match is_elsewhere {
            true => Vec::new(),
            false => resolve::buckets(vfs, &config.buckets, &self.requester.key, &wanted).await?,
        };
        let next = found.get(max).map(|bucket| token_of(bucket.name.as_bytes()));
        found.truncate(max);
        let buckets = found.into_iter().map(|bucket| Bucket {
            creation_date: Some(last_modified(&bucket.root)),
            name: Some(bucket.name),
            bucket_region: is_narrowed.then(|| region.to_owned()),
        });
        Ok(ListBucketsOutput {
            buckets: Some(buckets.collect()),
            owner: Some(self.owner()),
            prefix: input.prefix,
            continuation_token: next,
        })
    }

    /// Creates a directory at the top of the tree, where every directory is a bucket.
    pub async fn make_bucket(&self, name: &str) -> S3Result<()> {
        let name = self.bucket_name(name)?;
        let set = SetAttr { mode: Some(0o755), ..SetAttr::default() };
        let vfs = &self.shared.vfs;
        vfs.mkdir(self.caller(), vfs.root(), &name, set).await.map_err(s3_error)?;
        Ok(())
    }

    /// Removes the bucket's directory. Hidden names (unfinished uploads) go with it if there is nothing else: no
    /// listing would show what keeps the bucket from being deleted.
    pub async fn remove_bucket(&self, bucket: &resolve::OpenBucket) -> S3Result<()> {
        let name = self.bucket_name(&bucket.name)?;
        let vfs = &self.shared.vfs;
        self.remove_hidden(bucket).await?;
        vfs.rmdir(self.caller(), vfs.root(), &name).await.map_err(s3_error)?;
        Ok(())
    }

    fn bucket_name(&self, name: &str) -> S3Result<Name> {
        match self.shared.config.buckets {
            resolve::BucketMap::Top => Name::new(name.as_bytes().to_vec()).map_err(s3_error),
            resolve::BucketMap::Named(_) => Err(S3Error::with_message(
                S3ErrorCode::AccessDenied,
                "the buckets are those of the configuration; none is made or removed by requests",
            )),
        }
    }
}
