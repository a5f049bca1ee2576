//! The files of `packaging/grafana/`, as Grafana reads them.

use std::fs;

use serde_json::Value;

fn shipped(name: &str) -> String {
    let path = format!("{}/packaging/grafana/{name}", env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// What the data source's address has behind the port.
pub fn prefix() -> String {
    let sources: Value = serde_yaml::from_str(&shipped("datasource.yaml")).unwrap();
    let source = &sources["datasources"][0];
    assert_eq!(source["type"], "prometheus");
    assert_eq!(source["jsonData"]["timeInterval"], "1s");
    let url = source["url"].as_str().unwrap();
    url.strip_prefix("http://127.0.0.1:9900")
        .unwrap()
        .to_owned()
}

/// The queries of all panels and variables, with what Grafana puts in for variables.
pub fn queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&shipped("tollgate.json")).unwrap();
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{title}");
        for target in targets {
            queries.push(target["expr"].as_str().unwrap().to_owned());
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        // Grafana asks for a label's values by the series that have it.
        let query = variable["query"]["query"].as_str();
        if let Some((metric, _)) =
            query.and_then(|query| query.strip_prefix("label_values(")?.split_once(','))
        {
            queries.push(format!("group by (route) ({metric})"));
        }
    }
    let filled = |query: String| {
        let query = query
            .replace("$__rate_interval", "1m")
            .replace("$route", "api|shop");
        assert!(!query.contains('$'), "{query}");
        query
    };
    queries.into_iter().map(filled).collect()
}
