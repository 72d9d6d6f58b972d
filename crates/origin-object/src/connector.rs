//! Our connections under `object_store`'s requests.

use ::http::Request;
use async_trait::async_trait;
use http_body_util::BodyExt;
use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};

use crate::http::Http;

/// Our connections, for `object_store`'s requests for credentials.
#[derive(Clone, Debug)]
pub struct Connector(pub Http);

impl HttpConnector for Connector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Connector {
    async fn call(&self, request: HttpRequest) -> std::result::Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let data = body.collect().await?.to_bytes();
        let answer = self.0.send(Request::from_parts(parts, data)).await.map_err(|lost| {
            let kind = if lost.sent { HttpErrorKind::Interrupted } else { HttpErrorKind::Connect };
            HttpError::new(kind, lost)
        })?;
        let (parts, body) = answer.into_parts();
        let body = body.map_err(|e| HttpError::new(HttpErrorKind::Interrupted, e));
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body)))
    }
}
