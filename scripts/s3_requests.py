"""Requests to an S3 store for the measuring scripts, with nothing but the standard library."""
import datetime, hashlib, hmac, urllib.parse


def presigned(method, host, path, key_id, secret, region="us-east-1", query={}):
    """A path with its signature in the query, good for a day."""
    now = datetime.datetime.now(datetime.timezone.utc)
    date, stamp = now.strftime("%Y%m%d"), now.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{date}/{region}/s3/aws4_request"
    query = urllib.parse.urlencode(sorted({
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256", "X-Amz-Credential": f"{key_id}/{scope}", "X-Amz-Date": stamp,
        "X-Amz-Expires": "86400", "X-Amz-SignedHeaders": "host", **query}.items()), quote_via=urllib.parse.quote)
    request = f"{method}\n{path}\n{query}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD"
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = b"AWS4" + secret.encode()
    for part in (date, region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return f"{path}?{query}&X-Amz-Signature={hmac.new(key, text.encode(), hashlib.sha256).hexdigest()}"
