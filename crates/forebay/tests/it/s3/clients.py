"""What programs do with boto3, as it does it by default: checksums in trailers, uploads in parts. Says so if all is well."""
import base64
import io
import sys
import urllib.request
import zlib

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError

endpoint, big = sys.argv[1], open(sys.argv[2], "rb").read()
s3 = boto3.client("s3", endpoint_url=endpoint, config=Config(s3={"addressing_style": "path"}))


def refused(call, status):
    try:
        call()
    except ClientError as error:
        got = error.response["ResponseMetadata"]["HTTPStatusCode"]
        assert got == status, (got, error)
        return
    raise AssertionError("it was not refused")


assert [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]] == ["data"]
s3.head_bucket(Bucket="data")
refused(lambda: s3.head_bucket(Bucket="none"), 404)
put = s3.put_object(Bucket="data", Key="boto3/small", Body=b"small", ContentType="text/plain", Metadata={"a": "b"})
head = s3.head_object(Bucket="data", Key="boto3/small")
assert head["ETag"] == put["ETag"] and head["Metadata"] == {"a": "b"} and head["ContentType"] == "text/plain"
for algorithm in ["CRC32", "CRC32C", "SHA1", "SHA256", "CRC64NVME"]:
    try:
        s3.put_object(Bucket="data", Key="boto3/sum", Body=b"summed", ChecksumAlgorithm=algorithm)
    except Exception as error:  # what needs the CRT library is not everybody's
        assert "crt" in repr(error).lower(), repr(error)
        continue
    assert s3.get_object(Bucket="data", Key="boto3/sum")["Body"].read() == b"summed"
s3.delete_object(Bucket="data", Key="boto3/sum")
refused(lambda: s3.put_object(Bucket="data", Key="boto3/small", Body=b"x", IfNoneMatch="*"), 412)
refused(lambda: s3.get_object(Bucket="data", Key="boto3/small", IfNoneMatch=put["ETag"]), 304)
refused(lambda: s3.get_object(Bucket="data", Key="boto3/none"), 404)
refused(lambda: s3.put_object(Bucket="data", Key="boto3//x", Body=b"x"), 400)

parts = TransferConfig(multipart_threshold=8 << 20, multipart_chunksize=8 << 20, max_concurrency=4)
# With its completion goes the checksum of the whole.
whole = base64.b64encode(zlib.crc32(big).to_bytes(4, "big")).decode()
s3.upload_fileobj(io.BytesIO(big), "data", "boto3/big.bin", Config=parts, ExtraArgs={"ChecksumCRC32": whole})
read = io.BytesIO()
s3.download_fileobj("data", "boto3/big.bin", read, Config=parts)
assert read.getvalue() == big
part = s3.get_object(Bucket="data", Key="boto3/big.bin", Range="bytes=-1000")["Body"].read()
assert part == big[-1000:]
s3.copy({"Bucket": "data", "Key": "boto3/big.bin"}, "data", "boto3/copy.bin", Config=parts)
assert s3.get_object(Bucket="data", Key="boto3/copy.bin")["Body"].read() == big
assert "Uploads" not in s3.list_multipart_uploads(Bucket="data")

for number in range(25):
    s3.put_object(Bucket="data", Key=f"boto3/many/{number:03}", Body=b"")
pages = s3.get_paginator("list_objects_v2").paginate(Bucket="data", Prefix="boto3/", PaginationConfig={"PageSize": 10})
keys = [item["Key"] for page in pages for item in page["Contents"]]
many = [f"boto3/many/{number:03}" for number in range(25)]
assert keys == ["boto3/big.bin", "boto3/copy.bin", *many, "boto3/small"], keys
listed = s3.list_objects(Bucket="data", Delimiter="/")
assert [item["Prefix"] for item in listed["CommonPrefixes"]] == ["boto3/"]

v4 = boto3.client("s3", endpoint_url=endpoint, config=Config(signature_version="s3v4", s3={"addressing_style": "path"}))
url = v4.generate_presigned_url("get_object", Params={"Bucket": "data", "Key": "boto3/small"}, ExpiresIn=60)
assert urllib.request.urlopen(url).read() == b"small"
url = v4.generate_presigned_url("put_object", Params={"Bucket": "data", "Key": "boto3/by-url"}, ExpiresIn=60)
urllib.request.urlopen(urllib.request.Request(url, data=b"by url", method="PUT"))
assert s3.get_object(Bucket="data", Key="boto3/by-url")["Body"].read() == b"by url"

gone = s3.delete_objects(Bucket="data", Delete={"Objects": [{"Key": key} for key in [*many, "boto3/copy.bin", "boto3/by-url"]]})
assert len(gone["Deleted"]) == 27 and "Errors" not in gone, gone
left = s3.list_objects_v2(Bucket="data", Prefix="boto3/")["Contents"]
assert [item["Key"] for item in left] == ["boto3/big.bin", "boto3/small"]
print("all is well")
