"""Every operation that botocore's service model has, with the least input that it takes: what is not offered must be
refused, and change and delete nothing. Says so if all is well."""
import sys

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

endpoint, key, secret, region = sys.argv[1:5]
config = Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}, parameter_validation=False)
s3 = boto3.client(
    "s3", endpoint_url=endpoint, config=config, aws_access_key_id=key, aws_secret_access_key=secret, region_name=region
)
model = s3.meta.service_model

# Whatever changes something, and is offered: tried by name below.
OFFERED_CHANGES = {
    "AbortMultipartUpload", "CompleteMultipartUpload", "CopyObject", "CreateBucket", "CreateMultipartUpload",
    "DeleteBucket", "DeleteObject", "DeleteObjects", "PutObject", "UploadPart", "UploadPartCopy",
    "PutObjectTagging", "DeleteObjectTagging",
}
OFFERED_READS = {
    "GetBucketLocation", "GetBucketVersioning", "GetObject", "GetObjectTagging", "GetObjectAttributes", "HeadBucket",
    "HeadObject", "ListBuckets", "ListMultipartUploads", "ListObjects", "ListObjectVersions",
    "ListObjectsV2",
}
NOT_SET = {
    "GetBucketPolicy": "NoSuchBucketPolicy", "GetBucketPolicyStatus": "NoSuchBucketPolicy",
    "GetBucketCors": "NoSuchCORSConfiguration", "GetBucketLifecycle": "NoSuchLifecycleConfiguration",
    "GetBucketLifecycleConfiguration": "NoSuchLifecycleConfiguration", "GetBucketTagging": "NoSuchTagSet",
    "GetBucketWebsite": "NoSuchWebsiteConfiguration",
    "GetBucketEncryption": "ServerSideEncryptionConfigurationNotFoundError",
    "GetBucketReplication": "ReplicationConfigurationNotFoundError",
    "GetObjectLockConfiguration": "ObjectLockConfigurationNotFoundError",
    "GetPublicAccessBlock": "NoSuchPublicAccessBlockConfiguration",
    "GetBucketOwnershipControls": "OwnershipControlsNotFoundError",
    "GetObjectRetention": "InvalidRequest", "GetObjectLegalHold": "InvalidRequest", "ListParts": "NoSuchUpload",
}


def least(shape, depth=0):
    kind = shape.type_name
    if kind == "structure":
        members = shape.required_members or ([] if depth else list(shape.members)[:0])
        return {name: least(shape.members[name], depth + 1) for name in members}
    if kind == "list":
        return [least(shape.member, depth + 1)]
    if kind == "map":
        return {"a": "b"}
    if kind == "string":
        return shape.enum[0] if getattr(shape, "enum", None) else "x"
    if kind in ("integer", "long"):
        return 1
    if kind == "boolean":
        return True
    if kind == "timestamp":
        return 0
    if kind in ("blob",):
        return b"x"
    return 1.0


def state(bucket, objects):
    assert bucket in [b["Name"] for b in s3.list_buckets()["Buckets"]], "the bucket is gone"
    found = {o["Key"]: o["ETag"] for o in s3.list_objects_v2(Bucket=bucket).get("Contents", [])}
    assert found == objects, (bucket, found, objects)
    return found


s3.create_bucket(Bucket="empty")
s3.put_object(Bucket="data", Key="x", Body=b"bytes")
s3.put_object(Bucket="data", Key="d/y", Body=b"others")
before = state("data", {o["Key"]: o["ETag"] for o in s3.list_objects_v2(Bucket="data")["Contents"]})
assert set(before) == {"x", "d/y"}
counts = {"refused": 0, "not set": 0, "answered": 0}
for name in model.operation_names:
    if name in OFFERED_CHANGES:
        continue
    operation = model.operation_model(name)
    for bucket, object_key in [("data", "x"), ("empty", "x")]:
        arguments = least(operation.input_shape) if operation.input_shape else {}
        if operation.input_shape and "Bucket" in operation.input_shape.members:
            arguments["Bucket"] = bucket
        if operation.input_shape and "Key" in operation.input_shape.members:
            arguments["Key"] = object_key
        method = {v: k for k, v in s3.meta.method_to_api_mapping.items()}[name]
        try:
            getattr(s3, method)(**arguments)
            code, status = None, 200
        except ClientError as error:
            code = error.response["Error"]["Code"]
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
        except Exception as error:  # the client refuses to ask
            code, status = repr(error), 0
        if name in OFFERED_READS:
            assert code is None or bucket == "empty" or status == 0, (name, code)
            counts["answered"] += 1
        elif name in NOT_SET:
            assert code == NOT_SET[name], (name, code, status)
            counts["not set"] += 1
        else:
            assert code is not None and (status in (501, 400, 0)), (name, code, status)
            if status == 0:
                print(name, "is not asked:", code[:100])
            counts["refused"] += 1
        state("data", before)
        state("empty", {})
assert s3.get_object(Bucket="data", Key="x")["Body"].read() == b"bytes"
assert counts["refused"] > 100, counts
print(counts, "all is well")
