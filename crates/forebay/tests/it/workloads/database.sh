# sqlite3, journal by journal: many transactions; one that is killed in the middle and rolled back by the next process;
# processes that wait for each other.
# JOURNALS: what to try. INPUT has the SQL: setup, many (transactions), half (a transaction without its end), more.
exec 2>&1
setup() {
    case $1 in
    wal) echo 'pragma journal_mode=wal;' ;;
    # No second process and no shared memory, which sqlite does not want to have on NFS.
    wal-alone) echo 'pragma locking_mode=exclusive; pragma journal_mode=wal;' ;;
    *) echo "pragma journal_mode=$1;" ;;
    esac
    # Few pages in memory: a transaction that has not ended changes the file itself.
    echo 'pragma cache_size=8; pragma synchronous=full; pragma wal_autocheckpoint=40;'
}
contents() {
    sqlite3 -batch "${first[@]}" "$db" \
        'pragma integrity_check' 'select count(*), sum(amount) from account' 'select count(*) from entry'
    # Sorted: who of two comes first is nobody's business.
    sqlite3 -batch "${first[@]}" "$db" .dump | sort | md5sum
}
count() {
    for _ in 1 2 3 4 5 6; do
        sqlite3 -batch -cmd '.timeout 60000' "$db" \
            "begin immediate; update account set amount = amount + $1 where id = 1; insert into entry values (1, $1); commit"
    done
}

for journal in $JOURNALS; do
    echo "== $journal"
    db=$journal.db
    first=()
    [ "$journal" != wal-alone ] || first=(-cmd 'pragma locking_mode=exclusive')
    { setup "$journal"; cat "$INPUT/setup.sql" "$INPUT/many.sql"; } | sqlite3 -batch -bail "$db"
    contents

    coproc CLIENT { exec sqlite3 -batch -bail "$db"; }
    client=$CLIENT_PID
    { setup "$journal"; cat "$INPUT/half.sql"; } >&"${CLIENT[1]}"
    while read -r line <&"${CLIENT[0]}"; do
        echo "$line"
        [ "$line" != 'half done' ] || break
    done
    echo 'what another process is told meanwhile:'
    sqlite3 -batch "$db" 'select count(*) from account' || true
    kill -9 "$client"
    wait "$client" 2>/dev/null || true
    echo 'after the kill:'
    find . -name "$db*" -size +0 -printf '%P\n' | sort
    contents

    { setup "$journal"; cat "$INPUT/more.sql"; } | sqlite3 -batch -bail "$db"
    if [ "$journal" != wal-alone ]; then
        count 3 &
        count 5
        wait
    fi
    contents
    sqlite3 -batch "${first[@]}" "$db" 'pragma journal_mode=delete' vacuum
    contents
    find . -name "$db*" -printf '%P %s\n' | sort
done
