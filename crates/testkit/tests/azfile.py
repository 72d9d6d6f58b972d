"""What Microsoft's SDK for Azure Files does, against a service whose address, account, key and share it is told."""
import datetime
import sys

from azure.core.exceptions import HttpResponseError
from azure.storage.fileshare import AccountSasPermissions, ContentSettings, ResourceTypes, ShareSasPermissions
from azure.storage.fileshare import ShareServiceClient, generate_account_sas, generate_share_sas

endpoint, account, key, share_name = sys.argv[1:5]
MIB = 1 << 20


def service(credential):
    return ShareServiceClient(endpoint, credential=credential, retry_total=0)


def refused(status, code, call):
    try:
        call()
    except HttpResponseError as error:
        told = (error.status_code, str(getattr(error.error_code, "value", error.error_code)))
        assert told == (status, code), (told, status, code)
        return
    raise AssertionError(f"{code} was expected")


share = service({"account_name": account, "account_key": key}).get_share_client(share_name)
assert share.get_share_properties().quota > 0
assert share.get_share_stats() == 0

# Directories.
top = share.get_directory_client("sdk dir é+&")
made = top.create_directory(metadata={"colour": "blue"})
refused(409, "ResourceAlreadyExists", top.create_directory)
told = top.get_directory_properties()
assert told.metadata == {"colour": "blue"} and told.file_id == made["file_id"] and told.is_directory, told
refused(404, "ParentNotFound", share.get_directory_client("none/below").create_directory)
sub = top.create_subdirectory("sub")
refused(409, "DirectoryNotEmpty", top.delete_directory)

# A file: made, written in ranges, read in ranges.
data = bytes((i * 31 + (i >> 8) * 7) % 256 for i in range(3 * MIB)) + b"the end" * 1000
data = data * 3
whole = top.get_file_client("whole.bin")
whole.upload_file(data, length=len(data), metadata={"mode": "33188"}, max_concurrency=2)
assert whole.download_file(max_concurrency=3).readall() == data
assert whole.download_file(offset=MIB - 3, length=MIB).readall() == data[MIB - 3:2 * MIB - 3]
properties = whole.get_file_properties()
assert properties.size == len(data) and properties.metadata == {"mode": "33188"}, properties

small = top.get_file_client("small")
refused(404, "ResourceNotFound", small.get_file_properties)
first = small.create_file(10, content_settings=ContentSettings(content_type="text/plain"))
etags = {first["etag"]}
for offset, piece in ((0, b"abc"), (7, b"xyz"), (3, b"1234")):
    etags.add(small.upload_range(piece, offset=offset, length=len(piece))["etag"])
assert len(etags) == 4, "each write gives another ETag"
assert small.download_file().readall() == b"abc1234xyz"
refused(416, "InvalidRange", lambda: small.upload_range(b"beyond", offset=8, length=6))
refused(416, "InvalidRange", lambda: small.download_file(offset=20, length=5).readall())
refused(413, "RequestBodyTooLarge", lambda: whole.upload_range(b"x" * (4 * MIB + 1), offset=0, length=4 * MIB + 1))
whole.clear_range(512, 1024)
cleared = data[:512] + bytes(1024) + data[1536:]
assert whole.download_file().readall() == cleared
small.resize_file(5)
assert small.download_file().readall() == b"abc12"
small.resize_file(8)
assert small.download_file().readall() == b"abc12\0\0\0"
assert [(r["start"], r["end"]) for r in small.get_ranges()] == [(0, 7)]

# Properties and metadata.
then = datetime.datetime(2020, 2, 3, 4, 5, 6, 123456, tzinfo=datetime.timezone.utc)
small.set_http_headers(ContentSettings(content_type="image/png"), file_last_write_time=then)
properties = small.get_file_properties()
assert properties.content_settings.content_type == "image/png"
assert properties.last_write_time.replace(tzinfo=datetime.timezone.utc) == then, properties.last_write_time
small.set_file_metadata({"colour": "red"})
assert small.get_file_properties().metadata == {"colour": "red"}
refused(400, "InvalidMetadata", lambda: small.set_file_metadata({"no-dashes": "x"}))

# Names: in pages, with what is included; case does not tell them apart.
many = share.get_directory_client("many")
many.create_directory()
for number in range(25):
    many.get_file_client(f"File {number:02} &é").create_file(number)
many.create_subdirectory("a dir")
pages = [list(page) for page in many.list_directories_and_files(results_per_page=10, include=[
    "timestamps", "ETag", "Attributes", "PermissionKey"]).by_page()]
assert [len(page) for page in pages] == [10, 10, 6], [len(page) for page in pages]
listed = [entry for page in pages for entry in page]
assert sorted(entry.name for entry in listed) == sorted(["a dir"] + [f"File {n:02} &é" for n in range(25)])
for entry in listed:
    client = many.get_subdirectory_client(entry.name) if entry.is_directory else many.get_file_client(entry.name)
    told = client.get_directory_properties() if entry.is_directory else client.get_file_properties()
    assert (entry.etag, entry.file_id) == (told.etag.strip('"') if '"' not in entry.etag else told.etag, told.file_id)
    assert entry.is_directory or entry.size == told.size
    assert entry.last_write_time[:26] == told.last_write_time.strftime("%Y-%m-%dT%H:%M:%S.%f"), entry.last_write_time
assert [entry.name for entry in many.list_directories_and_files(name_starts_with="file 1")][0] == "File 10 &é"
upper = many.get_file_client("FILE 03 &É")
assert upper.get_file_properties().size == 3
for name in ("a:b", "what?", "nul", "LPT1"):
    refused(400, "InvalidResourceName", lambda: many.get_file_client(name).create_file(1))

# Renames keep what was stored and whose it is.
before = small.get_file_properties()
moved = small.rename_file("many/moved")
after = moved.get_file_properties()
assert after.file_id == before.file_id and after.metadata == {"colour": "red"} and after.size == 8
refused(404, "ResourceNotFound", small.get_file_properties)
other = many.get_file_client("File 01 &é")
refused(409, "ResourceAlreadyExists", lambda: other.rename_file("many/moved"))
other.rename_file("many/moved", overwrite=True)
assert many.get_file_client("moved").get_file_properties().size == 1
renamed = sub.rename_directory("many/sub moved")
assert renamed.exists() and not top.get_subdirectory_client("sub").exists()

# SAS of the account and of the share; keys that are wrong.
until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
every = AccountSasPermissions(read=True, write=True, delete=True, list=True, create=True)
token = generate_account_sas(account, key, ResourceTypes(service=True, container=True, object=True), every, until)
by_sas = service(token).get_share_client(share_name).get_directory_client("many")
assert len(list(by_sas.list_directories_and_files())) > 20
by_sas.get_file_client("by sas").upload_file(b"bytes")
assert by_sas.get_file_client("by sas").rename_file("many/renamed by sas").download_file().readall() == b"bytes"
token = generate_share_sas(account, share_name, key, ShareSasPermissions(read=True, list=True), until)
reads = service(token).get_share_client(share_name).get_file_client("many/renamed by sas")
assert reads.download_file().readall() == b"bytes"
refused(403, "AuthorizationPermissionMismatch", lambda: reads.upload_range(b"x", offset=0, length=1))
forged = token[:-6] + "AAAA" + token[-2:]
refused(403, "AuthenticationFailed", service(forged).get_share_client(share_name).get_file_client("many/moved").get_file_properties)
past = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=1)
token = generate_share_sas(account, share_name, key, ShareSasPermissions(read=True), past)
refused(403, "AuthenticationFailed", service(token).get_share_client(share_name).get_file_client("many/moved").get_file_properties)
wrong = service({"account_name": account, "account_key": "d3Jvbmc="}).get_share_client(share_name)
refused(403, "AuthenticationFailed", wrong.get_share_properties)
refused(404, "ShareNotFound", service({"account_name": account, "account_key": key}).get_share_client("none").get_share_properties)

# Away with it.
whole.delete_file()
refused(404, "ResourceNotFound", whole.delete_file)
top.delete_directory()
refused(404, "ResourceNotFound", top.get_directory_properties)
print("all is well")
