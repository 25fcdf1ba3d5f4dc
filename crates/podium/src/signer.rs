//! Signs requests for certificates with the cluster's authority. Who gets one
//! is decided elsewhere; here is made sure that it is no more than was decided:
//! for whom the request was read as, never an authority or a master, and for
//! these uses and this long only.

use std::fmt;
use std::time::Duration;

use ambient::Clock;
use apiserver::{AlternativeName, CertificateRequest, Subject};
use base64::Engine as _;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType, SigningKey as _, SubjectPublicKeyInfo,
};
use reconciler::Asked;
use rustls_pki_types::CertificateDer;

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
        let CertificateRequest { subject, names, .. } = CertificateRequest::read(request).ok()?;
        let count = |is: fn(&AlternativeName) -> bool| names.iter().filter(|name| is(name)).count();
        Some(Asked {
            common_name: subject.common_name,
            organizations: subject.organizations,
            dns: count(|name| matches!(name, AlternativeName::Dns(_))),
            ips: count(|name| matches!(name, AlternativeName::Ip(_))),
            emails: count(|name| matches!(name, AlternativeName::Email(_))),
            uris: count(|name| matches!(name, AlternativeName::Uri(_))),
        })
    }

    fn sign(&self, request: &[u8], usages: &[String], seconds: i64) -> Result<String, String> {
        let asked = CertificateRequest::read(request)?;
        if asked.subject.organizations.iter().any(|group| group == MASTERS) {
            return Err(format!("nobody becomes one of {MASTERS} by a request"));
        }
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        if asked.subject != Subject::default() {
            // In its place; without any subject the other names would be critical.
            params.distinguished_name.push(DnType::CommonName, "");
        }
        params.subject_alt_names = asked.names.iter().map(alternative_name).collect::<Result<_, _>>()?;
        params.is_ca = IsCa::NoCa;
        params.use_authority_key_identifier_extension = true;
        (params.key_usages, params.extended_key_usages) = purposes(usages);
        let now = u64::try_from(self.clock.now().wall.as_second()).map_err(|error| error.to_string())?;
        let life = u64::try_from(seconds).map_err(|error| error.to_string())?;
        let start = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(now);
        params.not_before = start - BACKDATED;
        params.not_after = start + Duration::from_secs(life);
        let key = SubjectPublicKeyInfo::from_der(&asked.public_key).map_err(|error| error.to_string())?;
        let nameless = params.signed_by(&key, &self.issuer).map_err(|error| error.to_string())?;
        let der = with_subject(nameless.der(), &asked.subject, self.issuer.key())?;
        // Who reads a certificate must find whom the request was judged for.
        if CertificateRequest::of_certificate(&der)? != asked {
            return Err("the subject can not be signed as it was asked for".to_owned());
        }
        Ok(pem(&der))
    }
}

/// Who may do everything, and is asked nothing.
const MASTERS: &str = "system:masters";

fn alternative_name(name: &AlternativeName) -> Result<SanType, String> {
    let text = |name: &String| name.as_str().try_into().map_err(|error: rcgen::Error| error.to_string());
    Ok(match name {
        AlternativeName::Dns(name) => SanType::DnsName(text(name)?),
        AlternativeName::Email(name) => SanType::Rfc822Name(text(name)?),
        AlternativeName::Ip(ip) => SanType::IpAddress(*ip),
        AlternativeName::Uri(name) => SanType::URI(text(name)?),
    })
}

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const BIT_STRING: u8 = 0x03;
/// Where the subject stands among the parts of a certificate that are signed:
/// version, serial number, algorithm, issuer, validity, subject.
const SUBJECT_AT: usize = 5;

/// The certificate with another subject, signed anew: `rcgen` keeps one value
/// of each attribute, and a subject may be in many organizations.
fn with_subject(certificate: &[u8], subject: &Subject, key: &KeyPair) -> Result<CertificateDer<'static>, String> {
    let unlike = || "the certificate is not what it was made as".to_owned();
    let whole = parts(certificate).ok_or_else(unlike)?;
    let [signed, algorithm, _] = whole[..] else { return Err(unlike()) };
    let mut signed = parts(signed).ok_or_else(unlike)?;
    let name = name(subject);
    *signed.get_mut(SUBJECT_AT).ok_or_else(unlike)? = &name;
    let signed = wrapped(SEQUENCE, &signed);
    let signature = key.sign(&signed).map_err(|error| error.to_string())?;
    // No bits of the last byte are unused.
    let signature = wrapped(BIT_STRING, &[&[0], &signature]);
    Ok(wrapped(SEQUENCE, &[&signed, algorithm, &signature]).into())
}

/// One after the other, so that groups stay in order.
fn name(subject: &Subject) -> Vec<u8> {
    let one = |(kind, text): (u8, &str)| {
        let kind = wrapped(OBJECT_IDENTIFIER, &[&[0x55, 0x04, kind]]);
        let text = wrapped(UTF8_STRING, &[text.as_bytes()]);
        wrapped(SET, &[&wrapped(SEQUENCE, &[&kind, &text])])
    };
    wrapped(SEQUENCE, &[&subject.attributes().flat_map(one).collect::<Vec<u8>>()])
}

fn wrapped(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let inner = parts.concat();
    let length = inner.len().to_be_bytes();
    let length = &length[length.iter().take_while(|byte| **byte == 0).count()..];
    let mut whole = vec![tag];
    match u8::try_from(inner.len()) {
        Ok(short) if short < 0x80 => whole.push(short),
        _ => {
            whole.push(0x80 | u8::try_from(length.len()).expect("a length has eight bytes at most"));
            whole.extend(length);
        }
    }
    whole.extend(inner);
    whole
}

/// What a sequence consists of, each with its tag and length.
fn parts(sequence: &[u8]) -> Option<Vec<&[u8]>> {
    let (header, _) = lengths(sequence)?;
    let (mut rest, mut found) = (sequence.get(header..)?, Vec::new());
    while !rest.is_empty() {
        let (header, inner) = lengths(rest)?;
        let (part, more) = rest.split_at_checked(header.checked_add(inner)?)?;
        found.push(part);
        rest = more;
    }
    Some(found)
}

/// Of tag with length, and of what follows them.
fn lengths(der: &[u8]) -> Option<(usize, usize)> {
    let first = *der.get(1)?;
    if first < 0x80 {
        return Some((2, first.into()));
    }
    let header = 2 + usize::from(first & 0x7f);
    let fold = |length: usize, byte: &u8| length.checked_mul(0x100)?.checked_add((*byte).into());
    Some((header, der.get(2..header)?.iter().try_fold(0, fold)?))
}

fn pem(der: &[u8]) -> String {
    const LINE: usize = 64;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for start in (0..text.len()).step_by(LINE) {
        pem.push_str(&text[start..text.len().min(start + LINE)]);
        pem.push('\n');
    }
    pem + "-----END CERTIFICATE-----\n"
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
    use rcgen::{BasicConstraints, PublicKeyData as _};
    use reconciler::Signer as _;
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

    /// A request in PEM for this subject, by a key of its own.
    fn request_of(subject: &Subject) -> String {
        let key = KeyPair::generate().unwrap();
        signed_request(subject, &key, &key.subject_public_key_info())
    }

    /// For a key that is said to be this one.
    fn signed_request(subject: &Subject, key: &KeyPair, said: &[u8]) -> String {
        let (version, no_attributes) = ([0x02, 0x01, 0x00], [0xa0, 0x00]);
        let ecdsa_with_sha256 = [0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
        let info = wrapped(SEQUENCE, &[&version, &name(subject), said, &no_attributes]);
        let signature = wrapped(BIT_STRING, &[&[0], &key.sign(&info).unwrap()]);
        pem(&wrapped(SEQUENCE, &[&info, &ecdsa_with_sha256, &signature])).replace("CERTIFICATE", "CERTIFICATE REQUEST")
    }

    #[test]
    fn api_687_all_groups_that_were_asked_for_are_signed_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Clock::manual();
        let now = clock.now().wall.as_second().unsigned_abs();
        let authority = Authority::open(dir.path(), clock.now().wall).unwrap();
        let signer = authority.signer(dir.path(), clock).unwrap();
        let many: Vec<String> = (0..100).map(|number| format!("group-{number}")).collect();
        let pair = || vec!["dev".to_owned(), "audit".to_owned()];
        for organizations in [pair(), [pair(), pair()].concat(), many, vec!["grün".to_owned(), String::new()], vec![]]
        {
            let subject =
                Subject { common_name: "jane".to_owned(), organizations, others: vec![(11, "unit".to_owned())] };
            let request = request_of(&subject);
            assert_eq!(signer.read(request.as_bytes()).unwrap().organizations, subject.organizations);
            let pem = signer.sign(request.as_bytes(), &["client auth".to_owned()], 600).unwrap();
            let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
            assert_eq!(CertificateRequest::of_certificate(&der).unwrap().subject, subject);
            let mut roots = rustls::RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(authority.certificate_pem().as_bytes()).unwrap()).unwrap();
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            let at = rustls_pki_types::UnixTime::since_unix_epoch(Duration::from_secs(now));
            verifier.build().unwrap().verify_client_cert(&der, &[], at).expect("our own servers believe it");
        }
        let masters = Subject { organizations: vec!["dev".to_owned(), MASTERS.to_owned()], ..Subject::default() };
        assert!(signer.sign(request_of(&masters).as_bytes(), &["client auth".to_owned()], 600).is_err());
    }

    #[test]
    fn api_767_a_key_is_of_the_type_that_it_signs_as() {
        let (subject, key) =
            (Subject { common_name: "jane".to_owned(), ..Subject::default() }, KeyPair::generate().unwrap());
        let good = key.subject_public_key_info();
        assert!(CertificateRequest::read(signed_request(&subject, &key, &good).as_bytes()).is_ok());
        let elliptic = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
        let at = good.windows(elliptic.len()).position(|bytes| bytes == elliptic).unwrap();
        let mut other = good.clone();
        other[at + 5] = 0x75;
        let problem = CertificateRequest::read(signed_request(&subject, &key, &other).as_bytes());
        assert_eq!(problem.unwrap_err(), "the public key is not of the type that it signs as");
    }
}
