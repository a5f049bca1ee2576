//! Header fields that are removed before a request is forwarded.

use super::*;

#[test]
fn protected_fields_are_removed() {
    let user = user::Settings::Header {
        name: "x-user".parse().unwrap(),
        allowed_peers: networks(),
    };
    let mut with_plan = settings(Some(user), None);
    let source = plan::PlanSource::Header {
        name: "x-forwarded-plan".parse().unwrap(),
        allowed_peers: vec![],
    };
    with_plan.plan.source = Some(source);
    with_plan.request_id_field = Some("request-id".parse().unwrap());
    let all = identifier(with_plan);
    let lines = [
        "Host: x",
        "Tollgate-Over: x",
        "tollgate_user: x",
        "X-User: ann",
        "X_User: ann",
        "X-User: bob",
        "X-Forwarded-For: 1.1.1.1",
        "X_Forwarded_Proto: https",
        "X-Forwarded-Plan: gold",
        "X-Real-IP: 1.1.1.1",
        "Forwarded: for=1.1.1.1",
        "X-Forward: x",
        "X-Original-URL: /x",
        "X_Rewrite_Url: /x",
        "Script-Name: /x",
        "SCRIPT_NAME: /x",
        "X-HTTP-Method: PUT",
        "X_HTTP_METHOD_OVERRIDE: PUT",
        "Request-Id: x",
        "request_id: x",
        "Tollgate: x",
    ];
    let remaining_names = |peer: &str| {
        let mut fields = head(&lines).fields;
        all.strip(peer.parse::<IpAddr>().unwrap(), &mut fields);
        let text = |name: &[u8]| String::from_utf8(name.to_ascii_lowercase()).unwrap();
        let mut names: Vec<_> = fields.iter().map(|(name, _)| text(name)).collect();
        names.sort();
        names.dedup();
        names.join(" ")
    };
    assert_eq!(
        remaining_names(CLIENT),
        "host tollgate x-forward x-http-method"
    );
    let names_from_proxy = "forwarded host script-name script_name tollgate x-forward x-forwarded-for x-http-method x-original-url x-real-ip x-user";
    assert_eq!(remaining_names(PROXY), names_from_proxy);
    assert_eq!(remaining_names("::ffff:10.0.0.1"), names_from_proxy);
}
