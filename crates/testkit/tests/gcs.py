"""What Google's SDK for Cloud Storage does, against a service whose address, bucket and credentials it is told."""
import sys

from google.api_core import exceptions
from google.cloud import storage
from google.oauth2 import service_account

endpoint, bucket_name, credentials = sys.argv[1:4]
scope = "https://www.googleapis.com/auth/cloud-platform"
who = service_account.Credentials.from_service_account_file(credentials, scopes=[scope])
client = storage.Client(project="p", credentials=who, client_options={"api_endpoint": endpoint})
bucket = client.bucket(bucket_name)


def refused(kind, call):
    try:
        call()
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was expected")


# Stored whole, read, and read in part.
blob = bucket.blob("dir/a & é+%")
blob.metadata = {"colour": "blue"}
blob.upload_from_string(b"some bytes", content_type="text/plain", if_generation_match=0)
first = blob.generation
assert (blob.metageneration, blob.size, blob.content_type) == (1, 10, "text/plain"), blob._properties
refused(exceptions.PreconditionFailed, lambda: blob.upload_from_string(b"x", if_generation_match=0))
assert blob.download_as_bytes() == b"some bytes"
assert blob.download_as_bytes(start=5, end=8) == b"byte"
refused(exceptions.RequestRangeNotSatisfiable, lambda: blob.download_as_bytes(start=10, end=11))
refused(exceptions.PreconditionFailed, lambda: blob.download_as_bytes(if_generation_match=first + 1))
assert blob.download_as_bytes(if_generation_match=first) == b"some bytes"
refused(exceptions.NotFound, lambda: bucket.blob("none").download_as_bytes())
assert bucket.get_blob("none") is None
refused(exceptions.NotFound, lambda: list(client.list_blobs("no-such-bucket")))
blob.upload_from_string(b"other bytes", if_generation_match=first)
assert blob.generation > first and blob.metageneration == 1
refused(exceptions.PreconditionFailed, lambda: blob.upload_from_string(b"x", if_generation_match=first))

# Described anew: the same generation, another metageneration.
blob.reload()
second = blob.generation
blob.metadata = {"shape": "round", "colour": None}
blob.patch(if_metageneration_match=1)
assert (blob.generation, blob.metageneration, blob.metadata) == (second, 2, {"shape": "round"})
blob.metadata = {"shape": "square"}
refused(exceptions.PreconditionFailed, lambda: blob.patch(if_metageneration_match=1))
told = bucket.get_blob("dir/a & é+%")
assert (told.generation, told.metageneration, told.metadata) == (second, 2, {"shape": "round"})
assert told.updated >= told.time_created

# Composed of at most 32.
pieces = []
for at in range(33):
    piece = bucket.blob(f"pieces/{at:02}")
    piece.upload_from_string(bytes([at]) * 3)
    pieces.append(piece)
whole = bucket.blob("whole")
whole.content_type = "application/octet-stream"
whole.metadata = {"made": "of pieces"}
refused(exceptions.BadRequest, lambda: whole.compose(pieces))
whole.compose(pieces[:32], if_generation_match=0)
whole.reload()
assert (whole.size, whole.component_count, whole.metadata) == (96, 32, {"made": "of pieces"})
refused(exceptions.PreconditionFailed, lambda: whole.compose(pieces[:2], if_generation_match=0))
refused(exceptions.NotFound, lambda: whole.compose([bucket.blob("none")]))
more = bucket.blob("more")
more.compose([whole, pieces[32]])
assert more.download_as_bytes() == b"".join(bytes([at]) * 3 for at in range(33))

# Copied: as it is, and on a condition.
copy = bucket.blob("copy")
token, rewritten, total = copy.rewrite(blob, if_source_generation_match=second)
assert (token, rewritten, total) == (None, 11, 11)
copy.reload()
assert (copy.metadata, copy.download_as_bytes()) == ({"shape": "round"}, b"other bytes")
refused(exceptions.PreconditionFailed, lambda: copy.rewrite(blob, if_source_generation_match=first))
refused(exceptions.PreconditionFailed, lambda: copy.rewrite(blob, if_generation_match=0))
client.create_bucket("moving-bucket")
moved = client.bucket("moving-bucket").blob("moved")
token, rewritten, _ = moved.rewrite(blob)
assert token is not None and rewritten == 0
token, rewritten, _ = moved.rewrite(blob, token=token)
assert token is None and rewritten == 11
refused(exceptions.Conflict, lambda: client.create_bucket("moving-bucket"))

# Listed: all, by directory, by pages.
names = [blob.name for blob in client.list_blobs(bucket_name)]
assert names == sorted(names) and len(names) == 37, names
listed = client.list_blobs(bucket_name, delimiter="/")
assert [blob.name for blob in listed] == ["copy", "more", "whole"]
assert listed.prefixes == {"dir/", "pieces/"}, listed.prefixes
paged = client.list_blobs(bucket_name, prefix="pieces/", page_size=10)
assert [len(list(page)) for page in paged.pages] == [10, 10, 10, 3]

# Removed.
refused(exceptions.PreconditionFailed, lambda: blob.delete(if_generation_match=first))
blob.delete(if_generation_match=second)
refused(exceptions.NotFound, blob.delete)

print("all is well")
