//! Signs requests for certificates with the cluster's authority. Who gets one
//! is decided elsewhere; here is made sure that it is no more than was decided:
//! for whom the request was read as, never an authority or a master, and for
//! these uses and this long only.

use std::fmt;
use std::time::Duration;

use ambient::Clock;
use apiserver::{CertificateRequest, Subject};
use rcgen::{
    CertificateSigningRequestParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use reconciler::Asked;

/// Clocks elsewhere may be a little slow.
const BACKDATED: Duration = Duration::from_secs(300);

pub(crate) struct Signer {
    pub(crate) issuer: Issuer<'static, KeyPair>,
    pub(crate) clock: Clock,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signer")
    }
}

impl reconciler::Signer for Signer {
    fn read(&self, request: &[u8]) -> Option<Asked> {
        let (Subject { common_name, organizations }, request) = parse(request).ok()?;
        let names = request.params.subject_alt_names;
        let count = |is: fn(&SanType) -> bool| names.iter().filter(|name| is(name)).count();
        Some(Asked {
            common_name,
            organizations,
            dns: count(|name| matches!(name, SanType::DnsName(_))),
            ips: count(|name| matches!(name, SanType::IpAddress(_))),
            emails: count(|name| matches!(name, SanType::Rfc822Name(_))),
            uris: count(|name| matches!(name, SanType::URI(_))),
        })
    }

    fn sign(&self, request: &[u8], usages: &[String], seconds: i64) -> Result<String, String> {
        let (asked, mut request) = parse(request)?;
        if asked.organizations.iter().any(|group| group == MASTERS) {
            return Err(format!("nobody becomes one of {MASTERS} by a request"));
        }
        let params = &mut request.params;
        params.is_ca = IsCa::NoCa;
        params.use_authority_key_identifier_extension = true;
        (params.key_usages, params.extended_key_usages) = purposes(usages);
        let now = u64::try_from(self.clock.now().wall.as_second()).map_err(|error| error.to_string())?;
        let life = u64::try_from(seconds).map_err(|error| error.to_string())?;
        let start = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(now);
        params.not_before = start - BACKDATED;
        params.not_after = start + Duration::from_secs(life);
        let certificate = request.signed_by(&self.issuer).map_err(|error| error.to_string())?;
        // Who reads a certificate must find whom the request was judged for.
        if Subject::of_certificate(certificate.der())? != asked {
            return Err("the subject can not be signed as it was asked for".to_owned());
        }
        Ok(certificate.pem())
    }
}

/// Who may do everything, and is asked nothing.
const MASTERS: &str = "system:masters";

/// The request as the API server reads it, and the same bytes as they are signed.
fn parse(request: &[u8]) -> Result<(Subject, CertificateSigningRequestParams), String> {
    let CertificateRequest { der, subject } = CertificateRequest::read(request)?;
    let params = CertificateSigningRequestParams::from_der(&der.into()).map_err(|error| error.to_string())?;
    Ok((subject, params))
}

/// What the words of Kubernetes are in a certificate. Others are not signed
/// for.
fn purposes(usages: &[String]) -> (Vec<KeyUsagePurpose>, Vec<ExtendedKeyUsagePurpose>) {
    let (mut keys, mut extended) = (Vec::new(), Vec::new());
    for usage in usages {
        match usage.as_str() {
            "digital signature" | "signing" => keys.push(KeyUsagePurpose::DigitalSignature),
            "key encipherment" => keys.push(KeyUsagePurpose::KeyEncipherment),
            "client auth" => extended.push(ExtendedKeyUsagePurpose::ClientAuth),
            "server auth" => extended.push(ExtendedKeyUsagePurpose::ServerAuth),
            _ => {}
        }
    }
    (keys, extended)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use apiserver::Identity;
    use client::{Client, Scope};
    use objects::api::certificates::v1::CertificateSigningRequest as Request;
    use objects::api::core::v1::{ConfigMap, ResourceQuota, ResourceQuotaSpec};
    use objects::apimachinery::pkg::api::resource::Quantity;
    use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType};
    use reconciler::Signer as _;
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject as _;

    use super::*;
    use crate::pki::Authority;

    struct World {
        authority: Authority,
        api: apiserver::ApiServer,
        clock: Clock,
        dir: tempfile::TempDir,
    }

    async fn world() -> World {
        let dir = tempfile::tempdir().unwrap();
        let clock = Clock::manual();
        let authority = Authority::open(&dir.path().join("pki"), clock.now().wall).unwrap();
        let state = store::Embedded::open(&dir.path().join("state.redb"), store::Options::default()).unwrap();
        let ids = ambient::Ids::new(ambient::Rng::seeded(1));
        let api = apiserver::ApiServer::new(Arc::new(state), apiserver::Config::default(), clock.clone(), ids);
        api.bootstrap().await.unwrap();
        World { authority, api, clock, dir }
    }

    impl World {
        fn client(&self, identity: Identity) -> Client {
            Client::new(self.api.service(identity))
        }

        fn controllers(&self) -> reconciler::Controllers {
            let signer = self.authority.signer(&self.dir.path().join("pki"), self.clock.clone()).unwrap();
            let config = reconciler::ControllersConfig {
                certificate: self.authority.certificate_pem().to_owned(),
                storage: None,
                nodes: reconciler::NodeSettings::upstream(),
                terminated_pods_max: None,
                signer: Some(Arc::new(signer)),
            };
            reconciler::Controllers::new(self.client(Identity::controllers()), self.clock.clone(), config)
        }
    }

    fn request(name: &str) -> Request {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "system:node:a");
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        let mut request = Request::default();
        request.metadata.name = Some(name.to_owned());
        request.spec.request = objects::ByteString(pem.into_bytes());
        request.spec.signer_name = "kubernetes.io/kube-apiserver-client-kubelet".to_owned();
        request.spec.usages = Some(vec!["digital signature".to_owned(), "client auth".to_owned()]);
        request
    }

    /// A machine with a token becomes a node by asking; somebody without one
    /// does not.
    #[tokio::test]
    async fn api_640_api_687_a_machine_joins_by_asking_for_its_certificate() {
        let world = world().await;
        let requests = world.client(Identity::admin()).cache::<Request>(Scope::everywhere());
        let joining = world.client(Identity::new("system:bootstrap:abcdef", ["system:bootstrappers"]));
        let script = async {
            let mut news = requests.subscribe();
            joining.create(&request("a")).await.unwrap();
            loop {
                let change = news.next().await;
                let status = change.object().status.clone().unwrap_or_default();
                let Some(certificate) = status.certificate else { continue };
                let approved = &status.conditions.unwrap_or_default()[0];
                assert_eq!((approved.type_.as_str(), approved.reason.as_deref()), ("Approved", Some("AutoApproved")));
                let pem = String::from_utf8(certificate.0).unwrap();
                assert!(pem.starts_with("-----BEGIN CERTIFICATE-----"), "{pem}");
                break;
            }
        };
        world.controllers().run(script).await;
    }

    /// API-716: counted when it is made, and again when something is gone.
    #[tokio::test]
    async fn api_716_a_quota_knows_what_is_used() {
        let world = world().await;
        let admin = world.client(Identity::admin());
        let script = async {
            let quotas = admin.cache::<ResourceQuota>(Scope::everywhere());
            let mut news = quotas.subscribe();
            let mut used = async |expected: &str| loop {
                let change = news.next().await;
                let used = change.object().status.clone().unwrap_or_default().used.unwrap_or_default();
                if used.get("configmaps").is_some_and(|used| used.0 == expected) {
                    break;
                }
            };
            let map = |name: &str| {
                let mut map = ConfigMap::default();
                map.metadata.name = Some(name.to_owned());
                map.metadata.namespace = Some("kube-public".to_owned());
                map
            };
            admin.create(&map("first")).await.unwrap();
            let maps = admin.cache::<ConfigMap>(Scope::everywhere());
            let mut map_news = maps.subscribe();
            while maps.get("kube-public", "kube-root-ca.crt").is_none() {
                map_news.next().await;
            }
            let mut quota = ResourceQuota::default();
            quota.metadata.name = Some("q".to_owned());
            quota.metadata.namespace = Some("kube-public".to_owned());
            let hard = [("configmaps".to_owned(), Quantity("9".to_owned()))].into();
            quota.spec = Some(ResourceQuotaSpec { hard: Some(hard), ..ResourceQuotaSpec::default() });
            admin.create(&quota).await.unwrap();
            // The one above, and the authority every namespace is told of.
            used("2").await;
            admin.create(&map("second")).await.unwrap();
            used("3").await;
            admin.delete::<ConfigMap>("kube-public", "first", &client::Deletion::default()).await.unwrap();
            used("2").await;
            // As if a write had come too early to be charged: found when all such writes are over.
            let begun = tokio::time::Instant::now();
            let wrong = client::Patch::Merge(serde_json::json!({"status": {"used": {"configmaps": "1"}}}));
            admin.patch_status::<ResourceQuota>("kube-public", "q", &wrong).await.unwrap();
            used("1").await;
            tokio::time::pause();
            tokio::time::advance(std::time::Duration::from_secs(40)).await;
            tokio::time::resume();
            used("2").await;
            assert!(
                begun.elapsed() < std::time::Duration::from_secs(300),
                "found by the next pass over everything only"
            );
        };
        world.controllers().run(script).await;
    }

    #[test]
    fn api_687_a_request_gets_what_was_decided_and_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Clock::manual();
        let authority = Authority::open(dir.path(), clock.now().wall).unwrap();
        let signer = authority.signer(dir.path(), clock).unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "system:node:a");
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.subject_alt_names = vec![SanType::IpAddress("10.0.0.1".parse().unwrap())];
        let request = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        let asked = signer.read(request.as_bytes()).unwrap();
        assert_eq!((asked.common_name.as_str(), asked.ips, asked.dns), ("system:node:a", 1, 0));
        assert_eq!(asked.organizations, ["system:nodes"]);

        let usages = ["digital signature", "client auth"].map(str::to_owned);
        let pem = signer.sign(request.as_bytes(), &usages, 600).unwrap();
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let has = |bytes: &[u8]| der.windows(bytes.len()).any(|window| window == bytes);
        assert!(!has(&[0x30, 0x03, 0x01, 0x01, 0xff]), "cA is true: an authority was signed");
        assert!(has(&[0x03, 0x02, 0x07, 0x80]), "keyUsage is digitalSignature alone");
        for (name, group) in [("jane", "system:masters"), ("root", "dev")] {
            let mut params = CertificateParams::default();
            params.distinguished_name = DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, name);
            params.distinguished_name.push(DnType::OrganizationName, group);
            let other = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
            assert_eq!(signer.sign(other.as_bytes(), &usages, 600).is_ok(), group != "system:masters");
            for both in [format!(" {other}{request}"), format!("{request}{other}")] {
                assert!(signer.read(both.as_bytes()).is_none());
                assert!(signer.sign(both.as_bytes(), &usages, 600).is_err());
            }
        }
        assert!(signer.read(b"nonsense").is_none());
        assert!(signer.sign(b"nonsense", &usages, 600).is_err());
    }
}
