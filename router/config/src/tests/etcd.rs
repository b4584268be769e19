use super::*;

fn shared(lines: &str) -> String {
    slow("") + "[etcd]\n" + lines
}

#[test]
fn etcd_members_get_a_default_port() {
    let text = shared("endpoints = [\"http://a\", \"http://10.0.0.2:99/\"]\nprefix = \"/x/\"\n");
    let (config, _) = read(&text).unwrap();
    let etcd = config.etcd.unwrap();
    assert_eq!(etcd.members, ["a:2379", "10.0.0.2:99"]);
    assert_eq!((etcd.prefix.as_str(), etcd.lease), ("/x", Duration::from_secs(2)));
}

#[test]
fn everything_wrong_with_etcd_is_said_at_once() {
    let text = shared(
        "endpoints = [\"https://a:2379\", \"b\"]\nprefix = \"x\"\nlease_s = 1\nname = \"a b\"\n\
         advertise = \"10.0.0.1\"\n",
    );
    let told = read(&text).unwrap_err().to_string();
    for wanted in [
        "endpoints has \"https://a:2379\"; give a member's address",
        "endpoints has \"b\"; give a member's address",
        "prefix is \"x\"; give one such as \"/sluice\"",
        "lease_s is 1; give 2 to 60",
        "name is \"a b\"",
        "advertise is \"10.0.0.1\"; give a host and a port",
    ] {
        assert!(told.contains(wanted), "{wanted}: {told}");
    }
    let told = read(&shared("")).unwrap_err().to_string();
    assert!(told.contains("[etcd] needs `endpoints`"), "{told}");
}

#[test]
fn a_state_dir_beside_etcd_is_warned_of_and_up_refuses_both() {
    let text = shared("endpoints = \"http://a\"\n") + "[router]\nstate_dir = \"state\"\n";
    let (config, warnings) = read(&text).unwrap();
    let told: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert!(told.iter().any(|one| one.contains("state_dir stores only learned")), "{told:?}");
    assert!(config.check_up().unwrap_err().to_string().contains("[etcd] is for `sluice router`"));
}
