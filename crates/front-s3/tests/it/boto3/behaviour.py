"""What boto3 sees of listings, conditions, refusals, uploads in parts and buckets. Where nothing else is said MinIO answers the
same. Says so if all is well."""
import sys
import urllib.error
import urllib.request

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.handlers import set_list_objects_encoding_type_url

endpoint, key, secret, region = sys.argv[1:5]


def client(**other):
    settings = dict(aws_access_key_id=key, aws_secret_access_key=secret, region_name=region)
    config = Config(signature_version="s3v4", s3={"addressing_style": "path"}, retries={"total_max_attempts": 1})
    return boto3.client("s3", endpoint_url=endpoint, config=config, **{**settings, **other})


s3, bucket = client(), "parts-and-keys"


def refused(call, **arguments):
    """Status and code; each error has a message, and its request's id."""
    try:
        call(**arguments)
    except ClientError as error:
        told, meta = error.response["Error"], error.response["ResponseMetadata"]
        assert told.get("Message"), error.response
        assert meta["RequestId"] == meta["HTTPHeaders"]["x-amz-request-id"], meta
        return meta["HTTPStatusCode"], told["Code"]
    raise AssertionError((call, arguments, "was not refused"))


def put(key="c", body=b"one", **other):
    return s3.put_object(Bucket=bucket, Key=key, Body=body, **other)["ETag"]


def upload(key, count=1, **other):
    id = s3.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
    parts = [
        {"PartNumber": n, "ETag": s3.upload_part(Bucket=bucket, Key=key, UploadId=id, PartNumber=n, Body=b"p")["ETag"]}
        for n in range(1, count + 1)
    ]
    arguments = dict(Bucket=bucket, Key=key, UploadId=id, MultipartUpload={"Parts": parts}, **other)
    return s3.complete_multipart_upload(**arguments)["ETag"]


# Keys that XML can carry, without encoding-type.
s3.create_bucket(Bucket=bucket)
keys = ["cr\rkey", "crlf\r\nkey", "lf\nkey", "plain", "tab\tkey"]
for name in keys:
    put(name)
plain = client()
plain.meta.events.unregister("before-parameter-build.s3.ListObjectsV2", set_list_objects_encoding_type_url)
assert [o["Key"] for o in plain.list_objects_v2(Bucket=bucket)["Contents"]] == keys
versions = s3.list_object_versions(Bucket=bucket)["Versions"]
assert [v["Key"] for v in versions] == keys
assert all(v["VersionId"] == "null" and v["IsLatest"] and v["Owner"]["ID"] for v in versions)
for wanted in (True, False):
    listed = s3.list_objects_v2(Bucket=bucket, FetchOwner=wanted)["Contents"]
    assert all(("Owner" in o) == wanted for o in listed)
assert "Owner" in s3.list_objects(Bucket=bucket)["Contents"][0]
objects = [{"Key": name, "VersionId": "null"} for name in keys if "\r" not in name]  # botocore writes a bare one
assert len(s3.delete_objects(Bucket=bucket, Delete={"Objects": objects})["Deleted"]) == 3
for name in keys:
    s3.delete_object(Bucket=bucket, Key=name)
assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0

# Conditions. (MinIO overlooks those of a DELETE.)
right, wrong = put(), '"%s"' % ("0" * 32)
for condition in ({"IfMatch": wrong}, {"IfNoneMatch": right}, {"IfNoneMatch": "*"}):
    assert refused(put, **condition) == (412, "PreconditionFailed"), condition
    assert refused(upload, key="c", **condition) == (412, "PreconditionFailed"), condition
for call in (put, upload):
    assert refused(call, key="none", IfMatch=wrong) == (404, "NoSuchKey")
    assert refused(call, key="none", IfMatch="*") == (404, "NoSuchKey")
put(IfMatch=right)
put(IfNoneMatch=wrong)
right = upload("c", IfMatch=right)
assert refused(s3.delete_object, Bucket=bucket, Key="c", IfMatch=wrong) == (412, "PreconditionFailed")
assert refused(s3.delete_object, Bucket=bucket, Key="none", IfMatch=wrong) == (404, "NoSuchKey")
s3.delete_object(Bucket=bucket, Key="c", IfMatch=right)
assert refused(s3.get_object, Bucket=bucket, Key="c") == (404, "NoSuchKey")

# Buckets.
assert bucket in [b["Name"] for b in s3.list_buckets(Prefix="parts")["Buckets"]]
pages = list(s3.get_paginator("list_buckets").paginate(PaginationConfig={"PageSize": 1}))
assert [b["Name"] for page in pages for b in page["Buckets"]] == ["data", bucket]
for name in ("foo-.bar", "foo.-bar"):
    assert refused(s3.create_bucket, Bucket=name) == (400, "InvalidBucketName")

# What is refused, and what is told as not there.
assert refused(s3.head_object, Bucket=bucket, Key="none")[0] == 404
assert refused(put, StorageClass="GLACIER") == (400, "InvalidStorageClass")
put(StorageClass="STANDARD")
assert refused(put, ExpectedBucketOwner="111122223333") == (403, "AccessDenied")  # MinIO overlooks it
assert refused(put, key="d/") == (400, "InvalidRequest")  # MinIO keeps it
assert refused(client(aws_session_token="token").list_buckets) == (400, "InvalidToken")
assert refused(client(aws_secret_access_key="x" * 20).list_buckets) == (403, "SignatureDoesNotMatch")
put("noted", Metadata={"note": "a\tb"})
assert s3.head_object(Bucket=bucket, Key="noted")["Metadata"] == {"note": "a\tb"}
head = s3.head_object(Bucket=bucket, Key="noted", ResponseContentType="image/png")
assert head["ContentType"] == "image/png"
url = s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "noted"})
assert urllib.request.urlopen(url).read() == b"one"

# Uploads are listed by time, and go with their bucket.
ids = [s3.create_multipart_upload(Bucket=bucket, Key="same")["UploadId"] for _ in range(8)]
assert [u["UploadId"] for u in s3.list_multipart_uploads(Bucket=bucket, Prefix="same")["Uploads"]] == ids
assert refused(s3.delete_bucket, Bucket=bucket) == (409, "BucketNotEmpty")
for found in s3.list_objects_v2(Bucket=bucket)["Contents"]:
    s3.delete_object(Bucket=bucket, Key=found["Key"])
s3.delete_bucket(Bucket=bucket)
s3.create_bucket(Bucket=bucket)
for _ in range(3):
    id = s3.create_multipart_upload(Bucket=bucket, Key="z")["UploadId"]
    for n in range(1, 21):
        s3.upload_part(Bucket=bucket, Key="z", UploadId=id, PartNumber=n, Body=b"p")
    s3.abort_multipart_upload(Bucket=bucket, Key="z", UploadId=id)
s3.delete_bucket(Bucket=bucket)
print("all is well")
