module ports

go 1.24

require pithead/ssdlet v0.0.0

replace pithead/ssdlet => ../../../../../sdk/go
