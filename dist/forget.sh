# Takes the libraries of a folder out of /etc/ld.so.preload, before they go: every program that starts would complain.
forget_library() {
    [ -f /etc/ld.so.preload ] || return 0
    cp -p /etc/ld.so.preload /etc/.ld.so.preload.xsched
    # Names stand between white space or colons; a # begins a comment.
    awk -v ours="$1" '{
        line = $0; sub(/#.*/, ""); kept = ""; hit = 0
        n = split($0, names, /[ \t:]+/)
        for (i = 1; i <= n; i++)
            if (index(names[i], ours) == 1) hit = 1
            else if (names[i] != "") kept = kept (kept == "" ? "" : " ") names[i]
        if (!hit) print line
        else if (kept != "") print kept
    }' /etc/ld.so.preload >/etc/.ld.so.preload.xsched
    if [ -s /etc/.ld.so.preload.xsched ]; then
        mv -f /etc/.ld.so.preload.xsched /etc/ld.so.preload
    else
        rm -f /etc/ld.so.preload /etc/.ld.so.preload.xsched
    fi
}

# Removes the CDI files whose hook is a command: engines would refuse each container whose hook is gone.
forget_containers() {
    for file in /etc/cdi/xsched.dev-class.json /var/run/cdi/xsched.dev-class.json; do
        if grep -qsF "\"path\": \"$1\"" "$file"; then
            rm -f "$file"
            rmdir --ignore-fail-on-non-empty "${file%/*}"
        fi
    done
}

# Removes what Python has compiled beside the examples, when they were run as root: their folders would stay.
forget_examples() {
    rm -rf "$1"/*/__pycache__
}
