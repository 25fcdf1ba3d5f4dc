//! Pure. Variables that tell a container where the Services of its namespace
//! are (LC-322), as upstream and, before it, Docker's links spelled them.

use std::collections::BTreeMap;

use objects::api::core::v1::{Pod, Service, ServicePort};

/// Everyone is told where the API server is.
const EVERYWHERE: (&str, &str) = ("default", "kubernetes");

/// What the pod's containers are told, by name.
pub(crate) fn variables<'a>(pod: &Pod, services: impl IntoIterator<Item = &'a Service>) -> BTreeMap<String, String> {
    let wants_links = pod.spec.as_ref().and_then(|spec| spec.enable_service_links).unwrap_or(true);
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let mut chosen: BTreeMap<&str, &Service> = BTreeMap::new();
    for service in services {
        let (home, name) = (text(&service.metadata.namespace), text(&service.metadata.name));
        if address(service).is_none() {
            continue;
        }
        if home == namespace && wants_links {
            chosen.insert(name, service);
        } else if (home, name) == EVERYWHERE {
            // One of the same name beside the pod is nearer.
            chosen.entry(name).or_insert(service);
        }
    }
    let mut variables = BTreeMap::new();
    chosen.into_iter().for_each(|(name, service)| tell(&mut variables, name, service));
    variables
}

fn text(text: &Option<String>) -> &str {
    text.as_deref().unwrap_or_default()
}

/// Services without one are found by their names only.
fn address(service: &Service) -> Option<&str> {
    let address = service.spec.as_ref()?.cluster_ip.as_deref()?;
    (!address.is_empty() && address != "None").then_some(address)
}

fn tell(variables: &mut BTreeMap<String, String>, name: &str, service: &Service) {
    let (Some(address), Some(spec)) = (address(service), &service.spec) else { return };
    let prefix = spelled(name);
    let mut put = |name: String, value: String| drop(variables.insert(name, value));
    put(format!("{prefix}_SERVICE_HOST"), address.to_owned());
    for (index, port) in spec.ports.iter().flatten().enumerate() {
        let ServicePort { port: number, name, protocol, .. } = port;
        if index == 0 {
            put(format!("{prefix}_SERVICE_PORT"), number.to_string());
        }
        if let Some(name) = name.as_deref().filter(|name| !name.is_empty()) {
            put(format!("{prefix}_SERVICE_PORT_{}", spelled(name)), number.to_string());
        }
        let protocol = protocol.as_deref().unwrap_or("TCP");
        let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
        let url = format!("{}://{host}:{number}", protocol.to_lowercase());
        if index == 0 {
            put(format!("{prefix}_PORT"), url.clone());
        }
        let link = format!("{prefix}_PORT_{number}_{}", protocol.to_uppercase());
        put(format!("{link}_PROTO"), protocol.to_lowercase());
        put(format!("{link}_PORT"), number.to_string());
        put(format!("{link}_ADDR"), address.to_owned());
        put(link, url);
    }
}

/// A name as a part of a variable's.
fn spelled(name: &str) -> String {
    name.to_uppercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(namespace: &str, name: &str, spec: Value) -> Service {
        serde_json::from_value(json!({"metadata": {"namespace": namespace, "name": name}, "spec": spec})).unwrap()
    }

    fn told(links: Option<bool>, services: &[Service]) -> Vec<String> {
        let pod = json!({"metadata": {"namespace": "team"}, "spec": {"containers": [], "enableServiceLinks": links}});
        let variables = variables(&serde_json::from_value(pod).unwrap(), services);
        variables.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    fn api() -> Service {
        service("default", "kubernetes", json!({"clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443}]}))
    }

    #[test]
    fn lc_322_a_service_is_told_as_upstream_spells_it() {
        let ports =
            json!([{"name": "web-ui", "port": 80, "protocol": "TCP"}, {"name": "dns", "port": 53, "protocol": "UDP"}]);
        let shop = service("team", "my-shop", json!({"clusterIP": "10.96.1.7", "ports": ports}));
        let expected = [
            "MY_SHOP_PORT=tcp://10.96.1.7:80",
            "MY_SHOP_PORT_53_UDP=udp://10.96.1.7:53",
            "MY_SHOP_PORT_53_UDP_ADDR=10.96.1.7",
            "MY_SHOP_PORT_53_UDP_PORT=53",
            "MY_SHOP_PORT_53_UDP_PROTO=udp",
            "MY_SHOP_PORT_80_TCP=tcp://10.96.1.7:80",
            "MY_SHOP_PORT_80_TCP_ADDR=10.96.1.7",
            "MY_SHOP_PORT_80_TCP_PORT=80",
            "MY_SHOP_PORT_80_TCP_PROTO=tcp",
            "MY_SHOP_SERVICE_HOST=10.96.1.7",
            "MY_SHOP_SERVICE_PORT=80",
            "MY_SHOP_SERVICE_PORT_DNS=53",
            "MY_SHOP_SERVICE_PORT_WEB_UI=80",
        ];
        assert_eq!(told(None, &[shop]), expected);
    }

    #[test]
    fn lc_322_without_links_only_the_api_server_is_told() {
        let near = service("team", "near", json!({"clusterIP": "10.96.1.7", "ports": [{"port": 80}]}));
        let far = service("other", "far", json!({"clusterIP": "10.96.1.8", "ports": [{"port": 80}]}));
        let all = [near, far, api()];
        let hosts = |links| {
            let told = told(links, &all);
            told.into_iter().filter(|line| line.contains("_SERVICE_HOST=")).collect::<Vec<_>>()
        };
        assert_eq!(hosts(Some(false)), ["KUBERNETES_SERVICE_HOST=10.96.0.1"]);
        assert_eq!(hosts(Some(true)), ["KUBERNETES_SERVICE_HOST=10.96.0.1", "NEAR_SERVICE_HOST=10.96.1.7"]);
    }

    #[test]
    fn lc_322_services_without_address_are_not_told_and_the_nearest_of_a_name_wins() {
        let headless = service("team", "headless", json!({"clusterIP": "None", "ports": [{"port": 80}]}));
        let named = service("team", "named", json!({"externalName": "example.com"}));
        let own = service("team", "kubernetes", json!({"clusterIP": "10.96.9.9", "ports": [{"port": 1}]}));
        for all in [vec![own.clone(), api(), headless.clone(), named.clone()], vec![headless, named, api(), own]] {
            let told = told(None, &all);
            assert!(told.contains(&"KUBERNETES_SERVICE_HOST=10.96.9.9".to_owned()), "{told:?}");
            assert!(told.iter().all(|line| line.starts_with("KUBERNETES_")), "{told:?}");
        }
    }
}
