#!/bin/sh
# A container engine's command line program, as tests want it. What it knows are the files in its folder:
#   up              the engine runs
#   fault           a word: what goes wrong with every question
#   containers/*    what `container inspect` shows of each
#   confs/*         the admin.conf in each
#   hang-exec/*     containers in which commands hang
#   no-events       events can't be followed
#   events          what is appended here is told to whoever follows events
#   calls           every call is written down here
#   following       a line for everyone who hears of all that is appended to `events` from now on
PATH=/usr/bin:/bin
dir=$(dirname "$0")
echo "$*" >>"$dir/calls"

if [ "$1" = -v ]; then
    case $(basename "$0") in
    docker) echo "Docker version 28.0.0, build scripted" ;;
    *) echo "$(basename "$0") version 4.3.1" ;;
    esac
    exit
fi

fail() {
    echo "$1" >&2
    exit 1
}

[ -e "$dir/up" ] || fail "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"

case $(cat "$dir/fault" 2>/dev/null) in
hang) sleep 1000 ;;
garbage) echo "<html>c4nary" && exit ;;
endless) exec yes c4nary ;;
denied)
    fail "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: dial unix: connect: permission denied"
    ;;
esac

case $1 in
ps) ls "$dir/containers" ;;
container)
    shift 2
    comma='' missing=''
    printf '['
    for id in "$@"; do
        if [ -e "$dir/containers/$id" ]; then
            printf '%s' "$comma"
            cat "$dir/containers/$id"
            comma=,
        else
            missing=$id
        fi
    done
    printf ']\n'
    [ -z "$missing" ] || fail "Error response from daemon: No such container: $missing"
    ;;
exec)
    [ -e "$dir/containers/$2" ] || fail "Error response from daemon: No such container: $2"
    [ ! -e "$dir/hang-exec/$2" ] || sleep 1000
    cat "$dir/confs/$2" 2>/dev/null || fail "cat: can't open '$4': No such file or directory"
    ;;
events)
    [ ! -e "$dir/no-events" ] || fail "unknown command: events"
    # From where it ends now, whenever `tail` gets to open it.
    end=$(wc -c <"$dir/events")
    echo following >>"$dir/following"
    tail -c "+$((end + 1))" -f "$dir/events" &
    while [ -e "$dir/up" ]; do sleep 0.1; done
    kill $!
    fail "unexpected EOF"
    ;;
*) fail "unknown command: $1" ;;
esac
