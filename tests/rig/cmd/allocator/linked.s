// Without a file like this one, Go refuses functions without bodies; see counted.go.
