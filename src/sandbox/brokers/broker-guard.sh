#!/bin/sh
# broker-guard: runs a server, and ends it when the process that started the guard ends, even by SIGKILL.
#
#   broker-guard.sh COMMAND [ARGUMENT]...
#
# stdin   a pipe whose other end only the parent holds: the kernel closes it when the parent ends
# fd 3    receives the server's pid, as one line
# exit    with the server's code, or 128 + N if signal N ended it

# The pipe moves to fd 4: the server must not inherit it.
exec 4<&0 </dev/null

"$@" 3>&- 4<&- &
server=$!
trap 'kill -TERM "$server" 2>/dev/null' TERM INT HUP
echo "$server" >&3
exec 3>&-

# `read` fails once the pipe is closed. It runs in a subshell, so that the guard itself can wait for the server.
end_server_after_parent() {
  trap - TERM
  while read -r _ <&4; do :; done
  kill -TERM "$server"
  # A server stopped by SIGSTOP would not see the SIGTERM.
  kill -CONT "$server"
}
end_server_after_parent >/dev/null 2>&1 &
watcher=$!
exec 4<&-

# A signal to the guard ends `wait` before the server has ended.
wait "$server"
code=$?
while kill -0 "$server" 2>/dev/null; do
  wait "$server"
  code=$?
done
kill -TERM "$watcher" 2>/dev/null
exit "$code"
