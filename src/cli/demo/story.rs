//! The story of the demo in about a minute: one scene for each kind of limit. A scene says what will happen, sends the
//! requests, and says what came of them; the numbers are those of the responses and of the gateway's counters.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use super::client::DemoClient;
use super::configuration::describe_policies;
use super::traffic::{DemoRun, ResponseTally, USUAL_CLIENTS, UsualTally};
use super::upstream::RIGHT_PASSWORD;
use crate::cli::output;

const NOISY: DemoClient = DemoClient {
    ip: "203.0.113.9",
    user: None,
};
const ATTACKER: DemoClient = DemoClient {
    ip: "198.51.100.7",
    user: None,
};
const ANN: DemoClient = DemoClient {
    ip: "192.0.2.20",
    user: None,
};
const SEARCHER: DemoClient = DemoClient {
    ip: "192.0.2.30",
    user: None,
};
const DAVE: DemoClient = DemoClient {
    ip: "192.0.2.40",
    user: Some(("dave", "free")),
};
/// The account that is attacked.
const EMAIL: &str = "ann@example.com";
/// The addresses from which bob and carol send their requests in turn.
const BOB_IPS: [&str; 3] = ["192.0.2.51", "192.0.2.52", "192.0.2.53"];
const CAROL_IPS: [&str; 3] = ["192.0.2.61", "192.0.2.62", "192.0.2.63"];
/// The pause after a scene, in seconds, in which its last lines can be read.
const READING_SECONDS: u64 = 3;
/// The time between two lines after the story, in seconds.
const LINE_SECONDS: u64 = 10;

/// Prints the addresses, the policies and the first response.
pub(super) fn print_first_screen(
    run: &DemoRun<'_>,
    admin: SocketAddr,
    folder: &Path,
) -> io::Result<()> {
    let address = run.address;
    output::print(format_args!(
        "tollgate demo\n\n  \
         gateway    http://{address}    in front of an upstream that only echoes\n  \
         dashboard  http://{admin}/    open it now: it shows each second of what follows\n  \
         policies   {}\n\n{}\n  \
         Clients state their address in X-Forwarded-For; this gateway believes it from this machine only.\n\n",
        folder.join("policies").display(),
        describe_policies(),
    ))?;
    let response = USUAL_CLIENTS[0].get(address, "/api/hello")?;
    output::print(format_args!(
        "  GET /api/hello as alice, from {}\n\n{}\n\n",
        USUAL_CLIENTS[0].ip,
        indent(&response.excerpt())
    ))
}

/// Plays the scenes in order, and then lets the clients go on. Returns early when the demo is over.
pub(super) fn play(
    run: &DemoRun<'_>,
    usual: &UsualTally,
    admin: SocketAddr,
    folder: &Path,
) -> io::Result<()> {
    let scenes = [
        usual_traffic,
        noisy_client,
        password_attack,
        plans,
        shadow_limit,
        elastic_limit,
    ];
    for scene in scenes {
        scene(run, usual)?;
        run.wait(READING_SECONDS);
        if run.is_over() {
            return Ok(());
        }
    }
    print_commands(run, admin, folder)?;
    go_on(run, usual)
}

/// Prints the heading of a scene with the time, and what will happen.
fn begin_scene(run: &DemoRun<'_>, title: &str, what: &str) -> io::Result<()> {
    output::print(format_args!(
        "  {}  {title}\n{}\n\n",
        run.time(),
        indent(what)
    ))
}

/// Prints what came of a scene.
fn end_scene(result: &str) -> io::Result<()> {
    output::print(format_args!("{}\n\n", indent(result)))
}

fn usual_traffic(run: &DemoRun<'_>, usual: &UsualTally) -> io::Result<()> {
    begin_scene(
        run,
        "1. Usual traffic",
        "Six clients send a request every two seconds each, far below all limits.",
    )?;
    run.wait(4);
    let (admitted, refused) = usual.counts();
    end_scene(&format!("{admitted} admitted, {refused} refused."))
}

fn noisy_client(run: &DemoRun<'_>, usual: &UsualTally) -> io::Result<()> {
    begin_scene(
        run,
        "2. A noisy client",
        &format!(
            "{} sends 25 requests a second. Limit per-ip admits 10/s of each address.",
            NOISY.ip
        ),
    )?;
    let (admitted_before, refused_before) = usual.counts();
    let tally = run.send_paced(150, 25, |_| NOISY.get(run.address, "/api/hello"))?;
    let (admitted, refused) = usual.counts();
    end_scene(&format!(
        "It got {} times 200, and {} times this:\n\n{}\n\nThe six usual clients: {} admitted, {} refused.",
        tally.admitted,
        tally.refused,
        indent(&first_refusal(&tally)),
        admitted - admitted_before,
        refused - refused_before,
    ))
}

fn password_attack(run: &DemoRun<'_>, _usual: &UsualTally) -> io::Result<()> {
    begin_scene(
        run,
        "3. A password attack",
        &format!(
            "{} guesses the password of {EMAIL}, 12 times. Limit failed-logins admits 5 wrong ones in 15 minutes\n\
             of an address and account together. It counts responses with status 401 only.",
            ATTACKER.ip
        ),
    )?;
    let mut statuses = Vec::new();
    run.send_paced(12, 2, |number| {
        let guess = ATTACKER.log_in(run.address, EMAIL, &format!("guess-{number}"))?;
        statuses.push(guess.status().to_string());
        Ok(guess)
    })?;
    let own = ANN.log_in(run.address, EMAIL, RIGHT_PASSWORD)?;
    end_scene(&format!(
        "It got {}.\nThe owner logs in from {} with the right password, and gets {}.",
        statuses.join(" "),
        ANN.ip,
        own.status()
    ))
}

fn plans(run: &DemoRun<'_>, _usual: &UsualTally) -> io::Result<()> {
    begin_scene(
        run,
        "4. Two plans",
        "bob (plan free) and carol (plan gold) send 90 requests each, both from three addresses.\n\
         Limit per-user admits 60/m of a user, from wherever; plan gold multiplies it by 5.",
    )?;
    let mut carol_tally = ResponseTally::default();
    let bob_tally = run.send_paced(90, 15, |number| {
        let carol = with_plan(CAROL_IPS, number, "carol", "gold");
        carol_tally.add(carol.get(run.address, "/api/hello")?);
        with_plan(BOB_IPS, number, "bob", "free").get(run.address, "/api/hello")
    })?;
    end_scene(&format!(
        "bob: {} admitted, {} refused. carol: {} admitted, {} refused.",
        bob_tally.admitted, bob_tally.refused, carol_tally.admitted, carol_tally.refused
    ))
}

fn shadow_limit(run: &DemoRun<'_>, _usual: &UsualTally) -> io::Result<()> {
    begin_scene(
        run,
        "5. A limit in shadow mode",
        &format!(
            "{} searches 30 times. Limit search admits 5/10s, but it only counts: nothing is refused yet.",
            SEARCHER.ip
        ),
    )?;
    let tally = run.send_paced(30, 6, |_| SEARCHER.get(run.address, "/search?q=toll"))?;
    end_scene(&format!(
        "{} admitted, {} refused. It would have refused {}.",
        tally.admitted,
        tally.refused,
        run.decisions("search", "shadow_refused")
    ))
}

fn elastic_limit(run: &DemoRun<'_>, _usual: &UsualTally) -> io::Result<()> {
    begin_scene(
        run,
        "6. An elastic limit",
        "dave asks for 48 reports in 8 seconds. Limit reports admits 10/10s for certain,\n\
         and lends more while the upstream has room, up to 50/10s.",
    )?;
    let tally = run.send_paced(48, 6, |_| DAVE.get(run.address, "/reports/sales"))?;
    end_scene(&format!(
        "{} admitted, {} of them lent; {} refused.",
        tally.admitted,
        run.decisions("reports", "over"),
        tally.refused
    ))
}

/// A user who sends the request of this number from one of three addresses.
fn with_plan(
    ips: [&'static str; 3],
    number: usize,
    user: &'static str,
    plan: &'static str,
) -> DemoClient {
    DemoClient {
        ip: ips[number % ips.len()],
        user: Some((user, plan)),
    }
}

/// What the client looks at in the first refusal.
fn first_refusal(tally: &ResponseTally) -> String {
    let refusal = tally.first_refusal.as_ref();
    refusal.map_or_else(|| "(no refusal)".to_owned(), |refusal| refusal.excerpt())
}

/// Prints what the limits have counted, and commands that show more of it.
fn print_commands(run: &DemoRun<'_>, admin: SocketAddr, folder: &Path) -> io::Result<()> {
    let address = run.address;
    output::print(format_args!(
        "  {}  7. Look at it yourself\n    \
         Refused: per-ip {}, failed-logins {}, per-user {}, reports {}. Would be refused: search {}.\n    \
         The record has each second of it. Open the dashboard: http://{admin}/\n\n    \
         curl -i http://{address}/api/hello -H 'x-user: bob'\n    \
         tollgate top --admin {admin}\n    \
         tollgate log explain --from -2m --admin {admin}\n    \
         tollgate near per-user --admin {admin}\n    \
         tollgate try search --admin {admin}\n    \
         tollgate explain GET /api/hello -H 'x-user: bob' --admin {admin}\n    \
         edit a file in {}: it is read again when it changes\n\n    \
         The clients go on until you press Ctrl-C.\n\n",
        run.time(),
        run.decisions("per-ip", "refused"),
        run.decisions("failed-logins", "refused"),
        run.decisions("per-user", "refused"),
        run.decisions("reports", "refused"),
        run.decisions("search", "shadow_refused"),
        folder.join("policies").display(),
    ))
}

/// Lets the noisy client come back again and again, and prints a line each time, until the demo is over.
fn go_on(run: &DemoRun<'_>, usual: &UsualTally) -> io::Result<()> {
    while !run.is_over() {
        let (admitted_before, refused_before) = usual.counts();
        let tally = run.send_paced(40, 20, |_| NOISY.get(run.address, "/api/hello"))?;
        run.wait(LINE_SECONDS - 2);
        let (admitted, refused) = usual.counts();
        output::print_line(format_args!(
            "  {}  usual clients: {} admitted, {} refused; {}: {} admitted, {} refused",
            run.time(),
            admitted - admitted_before,
            refused - refused_before,
            NOISY.ip,
            tally.admitted,
            tally.refused,
        ))?;
    }
    Ok(())
}

/// Indents each line of a text that is not empty by four blanks.
fn indent(text: &str) -> String {
    let indent_line = |line: &str| match line.is_empty() {
        true => String::new(),
        false => format!("    {line}"),
    };
    text.lines().map(indent_line).collect::<Vec<_>>().join("\n")
}
