//! Completes answers in XML: an error gets a message and the request's id, which clients print, and a carriage
//! return is escaped so that it survives the client's parser. Pure, but for the answer itself.

use bytes::Bytes;
use http::{HeaderValue, Response};
use s3s::Body;

const ERROR_START: &str = "<Error>";
const ERROR_END: &str = "</Error>";

/// `id`: of the request. `is_head`: the answer has no body, so the code goes into a header, where MinIO's clients
/// look for it.
pub fn finish_xml(mut response: Response<Body>, id: &HeaderValue, is_head: bool) -> Response<Body> {
    // Only bodies in memory are XML; those of objects are streams.
    let Some(whole) = response.body().bytes().filter(|bytes| !bytes.is_empty()) else { return response };
    let Ok(text) = std::str::from_utf8(&whole) else { return response };
    if !text.starts_with("<?xml") && !text.starts_with(ERROR_START) {
        return response;
    }
    let is_error = response.status().is_client_error() || response.status().is_server_error();
    let told = match is_error.then(|| complete_error(text, id.to_str().unwrap_or_default())).flatten() {
        Some((code, message, told)) => {
            if is_head {
                put_header(&mut response, "x-minio-error-code", &code);
                put_header(&mut response, "x-minio-error-desc", &message);
            }
            told
        }
        None if text.contains('\r') => text.to_owned(),
        None => return response,
    };
    // XML parsers turn a bare carriage return into a line feed.
    *response.body_mut() = Body::from(Bytes::from(told.replace('\r', "&#13;")));
    response
}

fn put_header(response: &mut Response<Body>, name: &'static str, text: &str) {
    if let Ok(value) = HeaderValue::try_from(text) {
        response.headers_mut().insert(name, value);
    }
}

/// Returns the code, the message, and the text with both and the request's id added. `None`: it is no error.
pub fn complete_error(text: &str, id: &str) -> Option<(String, String, String)> {
    let (head, rest) = text.split_once(ERROR_START)?;
    let (fields, tail) = rest.rsplit_once(ERROR_END)?;
    let field = |name: &str| {
        let (_, rest) = fields.split_once(&format!("<{name}>"))?;
        rest.split_once(&format!("</{name}>")).map(|(value, _)| value)
    };
    let code = field("Code")?;
    let message = field("Message");
    let added = match message {
        Some(_) => String::new(),
        None => format!("<Message>{}</Message>", message_of(code)),
    };
    let id = match field("RequestId") {
        Some(_) => String::new(),
        None => format!("<RequestId>{id}</RequestId>"),
    };
    let message = message.unwrap_or(message_of(code)).to_owned();
    let told = format!("{head}{ERROR_START}{fields}{added}{id}{ERROR_END}{tail}");
    Some((code.to_owned(), message, told))
}

/// The default message of a code. It has no character that XML would have to escape.
pub fn message_of(code: &str) -> &'static str {
    match code {
        "AccessDenied" => "Access Denied",
        "BadDigest" => "The Content-MD5 or checksum that was sent is not that of the body",
        "BucketAlreadyOwnedByYou" => "The bucket is there already, and it is yours",
        "BucketNotEmpty" => "The bucket that was to be deleted is not empty",
        "EntityTooLarge" => "The object is larger than is taken",
        "EntityTooSmall" => "A part other than the last is smaller than the least size of a part",
        "IncompleteBody" => "The body was shorter than its header said",
        "InternalError" => "Something went wrong here; please try again",
        "InvalidArgument" => "An argument of the request is not valid",
        "InvalidBucketName" => "The bucket's name is not valid",
        "InvalidDigest" => "The Content-MD5 or checksum that was sent is none",
        "InvalidPart" => "A part of the list was not found, or has another ETag",
        "InvalidPartNumber" => "The part number is not one of the object",
        "InvalidPartOrder" => "The parts of the list are not in the order of their numbers",
        "InvalidRange" => "The range is not satisfiable",
        "InvalidRequest" => "The request is not valid",
        "InvalidURI" => "The URI could not be parsed",
        "KeyTooLongError" => "The key is too long",
        "MalformedXML" => "The XML of the body is not as it should be",
        "MaxMessageLengthExceeded" => "The body is longer than is taken",
        "MetadataTooLarge" => "The metadata headers are longer than is taken",
        "MethodNotAllowed" => "The method is not allowed here",
        "MissingContentLength" => "The request must have a Content-Length",
        "NoSuchBucket" => "The bucket does not exist",
        "NoSuchKey" => "The key does not exist",
        "NoSuchUpload" => "The upload does not exist; it may have been completed or aborted",
        "NoSuchVersion" => "The version does not exist",
        "NotImplemented" => "What the request asks for is not offered here",
        "OperationAborted" => "The object was changed meanwhile; please try again",
        "PreconditionFailed" => "A condition of the request does not hold",
        "RequestTimeout" => "Nothing of the body came for too long",
        "ServiceUnavailable" => "The request cannot be served now; please try again later",
        "SlowDown" => "Please reduce the rate of requests",
        _ => "The request was refused",
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    fn explained(status: u16, text: &str, is_head: bool) -> (Response<Body>, String) {
        let mut response = Response::new(Body::from(text.to_owned()));
        *response.status_mut() = StatusCode::from_u16(status).expect("a status");
        let response = finish_xml(response, &HeaderValue::from_static("0a1b"), is_head);
        let text = String::from_utf8(response.body().bytes().expect("whole").to_vec()).expect("text");
        (response, text)
    }

    #[test]
    fn an_error_has_a_message_and_the_requests_id() {
        let start = "<?xml version=\"1.0\"?><Error><Code>NoSuchKey</Code>";
        let (_, text) = explained(404, &format!("{start}</Error>"), false);
        let expected =
            format!("{start}<Message>The key does not exist</Message><RequestId>0a1b</RequestId></Error>");
        assert_eq!(text, expected);
        let own = format!("{start}<Message>own</Message></Error>");
        let (response, text) = explained(404, &own, true);
        assert_eq!(text.matches("<Message>").count(), 1);
        assert_eq!(response.headers()["x-minio-error-code"], "NoSuchKey");
        assert_eq!(response.headers()["x-minio-error-desc"], "own");
    }

    #[test]
    fn a_carriage_return_outlives_a_parser_and_other_answers_stay() {
        assert_eq!(explained(200, "<?xml?><Key>a\rb\nc</Key>", false).1, "<?xml?><Key>a&#13;b\nc</Key>");
        assert_eq!(explained(200, "a\rb", false).1, "a\rb", "no XML of ours");
        assert_eq!(explained(404, "<?xml?><Errors/>", false).1, "<?xml?><Errors/>");
    }
}
