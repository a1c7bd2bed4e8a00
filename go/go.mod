module partywall.test/go

go 1.25

require golang.org/x/sys v0.33.0

require golang.org/x/net v0.40.0
