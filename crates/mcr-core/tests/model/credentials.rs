//! Changes of credentials, which need a connection that the fleet makes itself: over sockets and in real time.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use http::Request;
use http_body_util::BodyExt;
use mcr_core::{Access, Credential, Endpoint, EndpointAccess, StaticCredential};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

use mcr_doubles::place::{MAPS, Place, WIDGETS};

use crate::{
    announced::{Description, Facts},
    promises::Plain,
    witness::{Problems, Witness},
    world::{maps, metadata, no_values, widgets},
};

/// The tokens that a server takes, and how many watches are open by each.
#[derive(Clone, Default)]
struct Tokens(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    taken: HashSet<String>,
    watches: BTreeMap<String, usize>,
}

impl Tokens {
    fn take(&self, token: &str) {
        self.0.lock().unwrap().taken.insert(token.to_owned());
    }

    fn refuse(&self, token: &str) {
        self.0.lock().unwrap().taken.remove(token);
    }

    fn watches(&self) -> BTreeMap<String, usize> {
        let mut watches = self.0.lock().unwrap().watches.clone();
        watches.retain(|_, open| *open > 0);
        watches
    }
}

/// Serves a place over a socket; returns its address.
async fn serve(place: Place, tokens: Tokens) -> http::Uri {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (place, tokens) = (place.clone(), tokens.clone());
            tokio::spawn(async move {
                let mut socket = BufReader::new(socket);
                while let Ok(true) = answer(&mut socket, &place, &tokens).await {}
            });
        }
    });
    format!("http://{address}").parse().unwrap()
}

/// Answers one request; says whether another may come.
async fn answer(socket: &mut BufReader<TcpStream>, place: &Place, tokens: &Tokens) -> std::io::Result<bool> {
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if socket.read_line(&mut line).await? == 0 {
            return Ok(false);
        }
        if line.trim().is_empty() {
            break;
        }
        head.push(line.trim().to_owned());
    }
    let mut request = Request::new(());
    *request.uri_mut() = head[0].split(' ').nth(1).unwrap().parse().unwrap();
    let (mut length, mut token) = (0, String::new());
    for (name, value) in head[1..].iter().filter_map(|line| line.split_once(": ")) {
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().unwrap(),
            "authorization" => value.trim_start_matches("Bearer ").clone_into(&mut token),
            "accept" => drop(request.headers_mut().insert("accept", value.parse().unwrap())),
            _ => {}
        }
    }
    socket.read_exact(&mut vec![0; length]).await?;
    if !tokens.0.lock().unwrap().taken.contains(&token) {
        let refusal = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n";
        socket.write_all(refusal).await?;
        return Ok(true);
    }
    let watch = request
        .uri()
        .query()
        .is_some_and(|query| query.contains("watch=true"));
    let (head, mut body) = place.answer(&request).await?.into_parts();
    let status = format!(
        "HTTP/1.1 {} -\r\ntransfer-encoding: chunked\r\n\r\n",
        head.status.as_u16()
    );
    socket.write_all(status.as_bytes()).await?;
    let open = |change: isize| {
        let mut tokens = tokens.0.lock().unwrap();
        let open = tokens.watches.entry(token.clone()).or_default();
        *open = open.saturating_add_signed(change);
    };
    if watch {
        open(1);
    }
    let sent = async {
        loop {
            let frame = tokio::select! {
                frame = body.frame() => frame,
                // Nothing is sent during an answer, so this is the end.
                _ = socket.fill_buf() => return Ok(false),
            };
            let Some(frame) = frame else { break };
            let data = frame?.into_data().unwrap();
            socket
                .write_all(format!("{:x}\r\n", data.len()).as_bytes())
                .await?;
            socket.write_all(&data).await?;
            socket.write_all(b"\r\n").await?;
        }
        socket.write_all(b"0\r\n\r\n").await?;
        Ok(true)
    };
    let sent: std::io::Result<bool> = sent.await;
    if watch {
        open(-1);
    }
    sent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promise_6_any_rotation_costs_no_list_and_no_delete_is_missed_or_reported_twice() {
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let (place, tokens, problems) = (Place::new(1), Tokens::default(), Problems::default());
    let server = serve(place.clone(), tokens.clone()).await;
    for key in 0..6 {
        place.put(MAPS, &format!("n/k{key}"), "value");
    }
    // What began with an old one ends within some seconds, at the end of a line.
    let plain = Plain::start_with(|settings| {
        Arc::make_mut(&mut settings.transport).rotation_spread = Duration::from_secs(1);
    });
    let swaps = || plain.fleet.counts().credentials.renewed;
    let announce = |token: &str| {
        let facts = Facts::at(0);
        let source = StaticCredential::new(Credential::token(token));
        let access = Access::from(EndpointAccess::new(Endpoint::new(server.clone()), source));
        let description = Description::Good(facts.spec("a", &access).into(), facts);
        plain.provider.set("a", description);
    };
    tokens.take("token-0");
    announce("token-0");
    plain.until("it is engaged", |fleet| fleet.get("a").is_ok()).await;
    let cluster = plain.fleet.get("a").unwrap();
    let watches = [maps(), metadata(), widgets()].map(|request| {
        let witness = Witness::new(request.to_string(), std::slice::from_ref(&place), &problems);
        (cluster.watch(request, Some(witness.clone())).unwrap(), witness)
    });
    let synced = |_: &_| watches.iter().all(|(handle, _)| handle.status().synced);
    plain.until("all are listed", synced).await;
    let lists = place.lists();
    let mut last = 0;
    let mut deleted = 0;
    for step in 1..=60 {
        match random.random_range(0..6) {
            0 => {
                // The old one is refused at once, as after its revocation, or goes on for a while.
                tokens.take(&format!("token-{step}"));
                let before = swaps();
                announce(&format!("token-{step}"));
                if random.random() {
                    plain.until("it is swapped", |_| swaps() > before).await;
                    tokens.refuse(&format!("token-{last}"));
                }
                last = step;
            }
            1 => {
                announce("a token that is not taken");
                tokio::time::sleep(Duration::from_millis(random.random_range(0..50))).await;
                announce(&format!("token-{last}"));
            }
            2 => {
                let key = format!("n/k{}", random.random_range(0..6));
                deleted += usize::from(place.objects(MAPS).contains_key(&key));
                place.delete(MAPS, &key);
            }
            _ => {
                let kind = if random.random() { MAPS } else { WIDGETS };
                place.put(
                    kind,
                    &format!("n/k{}", random.random_range(0..6)),
                    &step.to_string(),
                );
            }
        }
        tokio::time::sleep(Duration::from_millis(random.random_range(0..150))).await;
    }
    let newest = BTreeMap::from([(format!("token-{last}"), 3)]);
    plain
        .until("all watches have the newest", |_| tokens.watches() == newest)
        .await;
    place.put(MAPS, "n/last", "value");
    place.put(WIDGETS, "n/last", "value");
    let there = [
        place.objects(MAPS),
        no_values(place.objects(MAPS)),
        place.objects(WIDGETS),
    ];
    plain
        .until("all is told", |_| {
            watches
                .iter()
                .zip(&there)
                .all(|((_, witness), there)| witness.held() == *there)
        })
        .await;
    assert_eq!(place.lists(), lists, "a rotation costs no list");
    assert_eq!(watches[0].1.deletes(), deleted);
    assert!(plain.fleet.get("a").unwrap().is_same(&cluster));
    assert!(cluster.state().is_ready());
    problems.assert_none();
    drop(watches);
    plain.end().await;
}
